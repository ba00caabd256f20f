"""Builds parts of pods from roles: resources, mounts, variables, placement. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Any

from torchx._startup.dataclass import light_dataclass
from torchx.errors import MountNotSupported
from torchx.specs.api import BindMount, DeviceMount, Role, VolumeMount
from torchx.specs.overlays import JOIN, apply_overlay

from .labels import container_name

PLACEHOLDER_FIELD_PATH = "[FIELD_PATH]"
"""Prefix of the value of a variable that is a field of the pod."""
ANNOTATION_ISTIO_SIDECAR = "sidecar.istio.io/inject"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
EFA_DEVICE = "vpc.amazonaws.com/efa"
RESERVED_MILLICPU = 100
RESERVED_MEMMB = 1024

_EXPANDABLE = re.compile(r"\$(?=[$(]|\Z)")


@light_dataclass(frozen=True)
class PodOptions:
    """The options that apply to the pods of all roles."""

    service_account: str | None = None
    priority_class: str | None = None
    node_selector: Mapping[str, str] | None = None
    pull_secrets: tuple[str, ...] = ()
    env_from_secret: tuple[str, ...] = ()
    grace_s: int | None = None
    gpu_resource: str = "nvidia.com/gpu"
    reserved_millicpu: int = RESERVED_MILLICPU
    reserved_memmb: int = RESERVED_MEMMB
    efa_device_count: int | None = None


def escaped(text: str) -> str:
    """Escapes a text so that a pod does not expand it.

    >>> escaped("$(x) $x $$")
    '$$(x) $x $$$$'
    """
    return _EXPANDABLE.sub("$$", text) if "$" in text else text


def field_variable(name: str, path: str) -> dict[str, Any]:
    """Returns a variable that is a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def build_placement(role: Role, opts: PodOptions) -> dict[str, Any]:
    """Builds the fields of the pod that depend on options and the resource; omits unset ones."""
    selector = dict(opts.node_selector or {})
    if LABEL_INSTANCE_TYPE in role.resource.capabilities:
        selector[LABEL_INSTANCE_TYPE] = str(role.resource.capabilities[LABEL_INSTANCE_TYPE])
    fields: dict[str, Any] = {
        "serviceAccountName": opts.service_account,
        "priorityClassName": opts.priority_class,
        "nodeSelector": selector or None,
        "imagePullSecrets": [{"name": name} for name in opts.pull_secrets] or None,
        "terminationGracePeriodSeconds": opts.grace_s,
    }
    return {name: value for name, value in fields.items() if value is not None}


def build_main(
    role: Role, name: str, command: list[str], env: list[dict[str, Any]], opts: PodOptions
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Builds the container of the role's program, and its volumes."""
    volumes, mounts, privileged = build_mounts(role)
    main: dict[str, Any] = {
        "name": name,
        "image": role.image,
        "command": command,
        "env": env,
        "ports": [{"name": name, "containerPort": port} for name, port in role.port_map.items()],
        "resources": build_resources(role, opts),
        "volumeMounts": mounts,
        "securityContext": {"privileged": True} if privileged else {},
    }
    if opts.env_from_secret:
        main["envFrom"] = [{"secretRef": {"name": name}} for name in opts.env_from_secret]
    return main, volumes


def build_resources(role: Role, opts: PodOptions) -> dict[str, dict[str, str]]:
    """Builds limits and requests of a container; requests leave a reserve for the node."""
    resource = role.resource
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    if resource.cpu > 0:
        millicpu = _rounded_up(resource.cpu * 1000)
        limits["cpu"] = f"{millicpu}m"
        requests["cpu"] = f"{max(millicpu - opts.reserved_millicpu, 0)}m"
    if resource.memMB > 0:
        megabytes = _rounded_up(resource.memMB)
        limits["memory"] = f"{megabytes}M"
        requests["memory"] = f"{max(megabytes - opts.reserved_memmb, 0)}M"
    if resource.gpu > 0:
        limits[opts.gpu_resource] = requests[opts.gpu_resource] = str(resource.gpu)
    for name, count in _devices(resource.devices, opts.efa_device_count).items():
        limits[name] = str(count)
    return {"limits": limits, "requests": requests}


def _rounded_up(amount: float) -> int:
    """Rounds up like the cluster, ignoring errors of binary fractions."""
    return math.ceil(round(amount, 6))


def _devices(devices: Mapping[str, int], efa: int | None) -> dict[str, int]:
    found = dict(devices)
    if efa is not None:
        found[EFA_DEVICE] = efa
    if efa == 0:
        del found[EFA_DEVICE]
    return found


def build_mounts(role: Role) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """Builds volumes, mounts, and whether the container must be privileged."""
    volumes: list[dict[str, Any]] = [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]
    mounts: list[dict[str, Any]] = [{"name": "dshm", "mountPath": "/dev/shm"}]
    privileged = False
    for i, mount in enumerate(role.mounts):
        name = f"mount-{i}"
        match mount:
            case BindMount():
                volumes.append({"name": name, "hostPath": {"path": mount.src_path}})
                read_only = mount.read_only
            case VolumeMount():
                claim = {"claimName": mount.src}
                volumes.append({"name": name, "persistentVolumeClaim": claim})
                read_only = mount.read_only
            case DeviceMount():
                volumes.append({"name": name, "hostPath": {"path": mount.src_path}})
                read_only = not {"w", "m"} & {*mount.permissions}
                privileged = True  # pods have no field for devices of the host
            case _:
                msg = (
                    f"role `{role.name}`: {mount!r} is not a mount; "
                    "give a BindMount, VolumeMount or DeviceMount"
                )
                raise MountNotSupported(msg)
        mounts.append({"name": name, "mountPath": mount.dst_path, "readOnly": read_only})
    return volumes, mounts, privileged


def lay_over(pod: dict[str, Any], overlay: Mapping[str, Any], role: str) -> None:
    """Applies the user's overlay to the pod.

    Args:
        role: whose name overlays may use for its container, as it is written or as containers are
            named; with some kinds of objects each replica has another name for it.
    """
    if not overlay:
        return
    own = pod["spec"]["containers"][0]["name"]
    merged = {"metadata": pod["metadata"], "spec": pod["spec"]}
    apply_overlay(merged, _addressed(overlay, {role, container_name(role)}, own))
    pod["metadata"], pod["spec"] = merged.get("metadata") or {}, merged.get("spec") or {}


def _addressed(overlay: Mapping[str, Any], names: set[str], own: str) -> dict[str, Any]:
    """The overlay with the container of the role called by its own name."""
    spec = overlay.get("spec")
    changes = spec.get(_CONTAINERS) if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(changes, list):
        return dict(overlay)
    renamed = [
        {**change, "name": own}
        if isinstance(change, dict) and change.get("name") in names
        else change
        for change in changes
    ]
    return {**overlay, "spec": {**spec, _CONTAINERS: renamed}}


_CONTAINERS = JOIN("containers", on="name")
