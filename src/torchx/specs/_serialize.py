"""Converts apps to plain JSON data and back, for records on disk."""

from typing import Any

from torchx.errors import InvalidInput
from torchx.specs._app import AppDef, Role
from torchx.specs._mounts import BindMount, DeviceMount, VolumeMount
from torchx.specs._resource import NULL_RESOURCE, Resource
from torchx.specs._state import RetryPolicy
from torchx.specs._workspace import Workspace

_MOUNTS: dict[str, type[BindMount] | type[VolumeMount] | type[DeviceMount]] = {
    "bind": BindMount,
    "volume": VolumeMount,
    "device": DeviceMount,
}


def app_to_json(app: AppDef) -> dict[str, Any]:
    """Returns the app as plain data; lazy values are produced, other objects become text."""
    return {
        "name": app.name,
        "metadata": _plain(app.metadata),
        "roles": [_role_to_json(role) for role in app.roles],
    }


def app_from_json(data: dict[str, Any]) -> AppDef:
    """Rebuilds the app from the data of ``app_to_json``."""
    roles = [_role_from_json(role) for role in data["roles"]]
    return AppDef(data["name"], roles, data["metadata"])


def _role_to_json(role: Role) -> dict[str, Any]:
    resource = role.resource
    return {
        "name": role.name,
        "image": role.image,
        "min_replicas": role.min_replicas,
        "entrypoint": role.entrypoint,
        "args": _plain(role.args),
        "env": _plain(role.env),
        "num_replicas": role.num_replicas,
        "max_retries": role.max_retries,
        "retry_policy": RetryPolicy(role.retry_policy).name,
        "resource": None
        if resource is None or resource == NULL_RESOURCE
        else {
            "cpu": resource.cpu,
            "gpu": resource.gpu,
            "memMB": resource.memMB,
            "capabilities": _plain(resource.capabilities),
            "devices": _plain(resource.devices),
            "tags": _plain(resource.tags),
        },
        "port_map": _plain(role.port_map),
        "metadata": _plain(role.metadata),
        "mounts": [_mount_to_json(m) for m in role.mounts],
        "workspace": dict(role.workspace.projects) if role.workspace is not None else None,
    }


def _role_from_json(data: dict[str, Any]) -> Role:
    fields = dict(data)
    fields["retry_policy"] = RetryPolicy[data["retry_policy"]]
    fields["resource"] = Resource(**data["resource"]) if data["resource"] else NULL_RESOURCE
    fields["mounts"] = [_mount_from_json(dict(m)) for m in data["mounts"]]
    workspace = data["workspace"]
    fields["workspace"] = None if workspace is None else Workspace(workspace)
    return Role(**fields)


def _mount_to_json(mount: BindMount | VolumeMount | DeviceMount) -> dict[str, Any]:
    for kind, cls in _MOUNTS.items():
        if isinstance(mount, cls):
            return {"type": kind, **{f: getattr(mount, f) for f in cls.__dataclass_fields__}}
    msg = f"{mount!r} is not a mount; give a BindMount, VolumeMount or DeviceMount"
    raise InvalidInput(msg)


def _mount_from_json(fields: dict[str, Any]) -> BindMount | VolumeMount | DeviceMount:
    return _MOUNTS[fields.pop("type")](**fields)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(value)
