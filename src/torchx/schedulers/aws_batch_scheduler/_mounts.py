"""Mounts of a role as volumes, mount points and devices of a container. Pure."""

import re
from collections.abc import Iterable
from typing import Any

from torchx.errors import InvalidInput, MountNotSupported
from torchx.specs.api import BindMount, DeviceMount, Role, VolumeMount

_PERMISSIONS = {"r": "READ", "w": "WRITE", "m": "MKNOD"}
_EFS = re.compile(r"(?P<id>fs-[0-9a-f]+)(?:/(?P<point>fsap-[0-9a-f]+))?(?::(?P<path>/.*))?")


def build_mounts(role: Role, mounts: Iterable[Any]) -> dict[str, list[dict[str, Any]]]:
    """Builds ``volumes``, ``mountPoints`` and ``devices`` of a role's container.

    Raises:
        InvalidInput: for an object that is not a mount, and a volume that is not a file system.
    """
    volumes: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for i, mount in enumerate(mounts):
        name = f"mount_{i}"
        match mount:
            case BindMount():
                volumes.append({"name": name, "host": {"sourcePath": mount.src_path}})
                points.append(_point(mount, name))
            case VolumeMount():
                volumes.append({"name": name, "efsVolumeConfiguration": _efs(role, mount.src)})
                points.append(_point(mount, name))
            case DeviceMount():
                devices.append(
                    {
                        "hostPath": mount.src_path,
                        "containerPath": mount.dst_path,
                        "permissions": [_permission(role, p) for p in mount.permissions],
                    }
                )
            case _:
                msg = (
                    f"role `{role.name}`: {mount!r} is not a mount; "
                    "give a BindMount, VolumeMount or DeviceMount"
                )
                raise MountNotSupported(msg)
    return {"volumes": volumes, "mountPoints": points, "devices": devices}


def _point(mount: BindMount | VolumeMount, name: str) -> dict[str, Any]:
    return {"containerPath": mount.dst_path, "readOnly": mount.read_only, "sourceVolume": name}


def _permission(role: Role, letter: str) -> str:
    if letter not in _PERMISSIONS:
        msg = f"role `{role.name}`: a device has permissions of the letters r, w, m: `{letter}`"
        raise InvalidInput(msg)
    return _PERMISSIONS[letter]


def _efs(role: Role, source: str) -> dict[str, Any]:
    """Builds an EFS volume: ``fs-1234``, one of its access points or one of its directories."""
    found = _EFS.fullmatch(source)
    if found is None:
        msg = (
            f"role `{role.name}`: a volume is a file system of EFS here, as fs-12ab, "
            f"fs-12ab/fsap-34cd or fs-12ab:/directory, given: `{source}`"
        )
        raise InvalidInput(msg)
    config: dict[str, Any] = {"fileSystemId": found["id"]}
    if found["path"]:
        config["rootDirectory"] = found["path"]
    if found["point"]:
        # an access point can only be used over TLS
        config["transitEncryption"] = "ENABLED"
        config["authorizationConfig"] = {"accessPointId": found["point"], "iam": "ENABLED"}
    return config
