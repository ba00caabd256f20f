"""Mounts: file systems and devices of a replica, and their text form."""

import os
from enum import Enum

from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput, MissingMountOption, UnknownName


class MountType(str, Enum):
    """The kinds of mounts."""

    BIND = "bind"
    VOLUME = "volume"
    DEVICE = "device"


@light_dataclass
class BindMount:
    """Mounts a path of the host."""

    src_path: str
    dst_path: str
    read_only: bool = False


@light_dataclass
class VolumeMount:
    """Mounts a persistent volume of the scheduler."""

    src: str
    dst_path: str
    read_only: bool = False


@light_dataclass
class DeviceMount:
    """Makes a device of the host available; ``permissions`` holds letters of ``rwm``."""

    src_path: str
    dst_path: str
    permissions: str = "rwm"


_ALIASES = {
    "type": "type",
    "destination": "dst",
    "dst": "dst",
    "target": "dst",
    "read_only": "readonly",
    "readonly": "readonly",
    "source": "src",
    "src": "src",
    "perm": "perm",
}


def parse_mounts(opts: list[str]) -> list[BindMount | VolumeMount | DeviceMount]:
    """Reads mounts from ``key=value`` options; each ``type`` starts a new one.

    >>> parse_mounts(["type=bind", "src=/host", "dst=/job", "readonly"])
    [BindMount(src_path='/host', dst_path='/job', read_only=True)]

    Raises:
        KeyError: for an unknown or missing option.
        InvalidInput: for an unknown type or permission.
    """
    groups: list[dict[str, str]] = []
    for opt in opts:
        key, _, value = opt.partition("=")
        if key not in _ALIASES:
            msg = f"unknown mount option {key}, must be one of {list(_ALIASES)}"
            raise UnknownName(msg)
        name = _ALIASES[key]
        if name == "type":
            groups.append({})
        elif not groups:
            msg = "type must be specified first"
            raise MissingMountOption(msg)
        groups[-1][name] = value
    return [_mount(group) for group in groups]


def _mount(group: dict[str, str]) -> BindMount | VolumeMount | DeviceMount:
    kinds = [kind.value for kind in MountType]
    if group["type"] not in kinds:
        msg = f"invalid mount type {group['type']!r}, must be one of {kinds}"
        raise InvalidInput(msg)
    kind = MountType(group["type"])
    for needed in ("src",) if kind is MountType.DEVICE else ("src", "dst"):
        if needed not in group:
            given = ",".join(f"{name}={value}" for name, value in group.items())
            msg = f"{needed} is missing from a mount of type `{kind.value}`; given: {given}"
            raise MissingMountOption(needed, msg)
    if kind is MountType.BIND:
        source = os.path.expanduser(group["src"])
        return BindMount(source, group["dst"], "readonly" in group)
    if kind is MountType.VOLUME:
        return VolumeMount(group["src"], group["dst"], "readonly" in group)
    permissions = group.get("perm", "rwm")
    for letter in permissions:
        if letter not in "rwm":
            msg = f"{letter} is not a valid permission flags must one of r,w,m"
            raise InvalidInput(msg)
    return DeviceMount(group["src"], group.get("dst", group["src"]), permissions)
