"""Builds the native request: one container for each replica, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, MountNotSupported, UnsupportedRequest
from torchx.schedulers.devices import get_device_mounts
from torchx.settings import ENV_TORCHX_IMAGE, ENV_TORCHX_RANK0_HOST
from torchx.specs._macros import MacroPlan
from torchx.specs.api import (
    AppDef,
    BindMount,
    DeviceMount,
    RetryPolicy,
    Role,
    VolumeMount,
    macros,
)
from torchx.version import __version__
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from ._options import Opts

LABEL_VERSION: str = DockerWorkspaceMixin.LABEL_VERSION
LABEL_APP_ID: str = "torchx.pytorch.org/app-id"
LABEL_ROLE_NAME: str = "torchx.pytorch.org/role-name"
LABEL_REPLICA_ID: str = "torchx.pytorch.org/replica-id"
NETWORK = "torchx"
"""Name of the bridge network on which the replicas find each other by name."""
RANK0_ENV = ENV_TORCHX_RANK0_HOST

_PART_CHARS = 30
"""What is kept of the app's id (its end) and of the role's name (its beginning) in a name."""
_NAME_CHARS = 63
"""Bound of a host name that can be resolved: one label of DNS."""

logger = get_logger(__name__)


@dataclass
class DockerContainer:
    """Arguments of ``containers.run`` of Docker's Python SDK."""

    image: str
    command: list[str]
    kwargs: dict[str, object]


@dataclass(repr=False)
class DockerJob:
    """The native request of ``local_docker``. Its text is the YAML of the containers."""

    app_id: str
    containers: list[DockerContainer]
    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Images that are made in a registry: repository and tag of each, by its name."""
    quiet: bool = False
    """Whether the progress of pulls is not shown."""

    def __repr__(self) -> str:
        return render_request(self)

    __str__ = __repr__


class _Quoted(str):
    """Text that YAML writes as JSON does, so that the secrets in it are found and masked."""


def render_request(job: DockerJob) -> str:
    """The containers as YAML."""
    import yaml

    containers = [
        {"image": c.image, "command": c.command, **_shown(c.kwargs)} for c in job.containers
    ]
    text: str = yaml.dump(
        containers, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=1 << 20
    )
    return text


def _shown(kwargs: Mapping[str, object]) -> dict[str, object]:
    env = kwargs.get("environment")
    if not isinstance(env, dict):
        return dict(kwargs)
    quoted = {
        name: _Quoted(value) if isinstance(value, str) and set(value) & set("'\"\\\n") else value
        for name, value in env.items()
    }
    return {**kwargs, "environment": quoted}


def _dumper() -> Any:
    """A dumper that writes what a user put into the request in whatever type, in full."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    Dumper.add_representer(
        _Quoted, lambda d, text: d.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')
    )
    Dumper.add_multi_representer(dict, yaml.SafeDumper.represent_dict)
    Dumper.add_multi_representer(str, lambda d, text: d.represent_str(str(text)))
    Dumper.add_multi_representer(object, lambda d, value: d.represent_str(str(value)))
    return Dumper


def build_request(app: AppDef, app_id: str, opts: Opts, environ: Mapping[str, str]) -> DockerJob:
    """Builds the request of an app; the app is left as it is.

    Args:
        environ: environment that ``copy_env`` copies from.

    Raises:
        InvalidInput: if the names of containers would be invalid or the same.
        UnsupportedRequest: for a retry policy that Docker cannot carry out.
    """
    _check_retries(app)
    shared = {**_copied(opts.copy_env or (), environ), **(opts.env or {})}
    rank0 = container_name(app_id, app.roles[0].name, 0)
    owners: dict[str, str] = {}
    containers: list[DockerContainer] = []
    for role in app.roles:
        names = [container_name(app_id, role.name, k) for k in range(role.num_replicas)]
        for name in names:
            _check_name(name, app, role)
            if name in owners:
                msg = (
                    f"roles `{owners[name]}` and `{role.name}` would both have a container "
                    f"`{name}`: give them names that differ in the first {_PART_CHARS} characters"
                )
                raise InvalidInput(msg)
            owners[name] = role.name
        containers += _containers(role, app_id, names, rank0, shared, opts.privileged)
    return DockerJob(app_id, containers)


def container_name(app_id: str, role_name: str, replica: int) -> str:
    """Name of a replica's container, which is its host name as well.

    >>> container_name("job-x1", "trainer", 1)
    'job-x1-trainer-1'
    """
    rest = f"-{role_name[:_PART_CHARS]}-{replica}"
    kept = min(_PART_CHARS, _NAME_CHARS - len(rest))
    name = app_id[-kept:] + rest
    start = 0
    while start < len(name) and not (name[start].isascii() and name[start].isalnum()):
        start += 1
    return name[start:]


def _check_name(name: str, app: AppDef, role: Role) -> None:
    bad = sorted({c for c in name if not (c.isascii() and (c.isalnum() or c in "_.-"))})
    if bad:
        msg = (
            f"app `{app.name}` and role `{role.name}` cannot be parts of a container's name, "
            f"given: {', '.join(map(repr, bad))}; use letters, digits and any of _ . -"
        )
        raise InvalidInput(msg)


def _check_retries(app: AppDef) -> None:
    replicas = sum(role.num_replicas for role in app.roles)
    for role in app.roles:
        if role.max_retries <= 0:
            continue
        policy = RetryPolicy(role.retry_policy)
        if policy is RetryPolicy.ROLE:
            msg = (
                f"role `{role.name}`: retry policy {policy.name} is not supported by local_docker, "
                "where Docker restarts the container that failed and no other: use REPLICA"
            )
            raise UnsupportedRequest(msg)
        if policy is RetryPolicy.APPLICATION and replicas > 1:
            logger.warning(
                "role `%s`: when a replica fails, Docker restarts its container alone and not the "
                "whole application; retry policy REPLICA says so",
                role.name,
            )


def _copied(patterns: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names match one of the patterns."""
    if not patterns:
        return {}
    from fnmatch import fnmatchcase

    return {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _containers(
    role: Role,
    app_id: str,
    names: list[str],
    rank0: str,
    shared: Mapping[str, str],
    privileged: bool,
) -> list[DockerContainer]:
    _check_env(role, {**shared, **role.env})
    mounts, devices = _mounts(role)
    limits = _limits(role)
    plan = MacroPlan(role)
    found = []
    for k, name in enumerate(names):
        values = macros.Values(img_root="", app_id=app_id, replica_id=str(k), rank0_env=RANK0_ENV)
        env = {**shared, **plan.env(values), RANK0_ENV: rank0, ENV_TORCHX_IMAGE: role.image}
        kwargs: dict[str, object] = {
            "name": name,
            "hostname": name,
            "environment": env,
            "labels": {
                LABEL_VERSION: __version__,
                LABEL_APP_ID: app_id,
                LABEL_ROLE_NAME: role.name,
                LABEL_REPLICA_ID: str(k),
            },
            "privileged": privileged,
            "network": NETWORK,
            "mounts": [dict(mount) for mount in mounts],
            "devices": list(devices),
            **{key: _copy(value) for key, value in limits.items()},
        }
        found.append(DockerContainer(role.image, [role.entrypoint, *plan.args(values)], kwargs))
    return found


def _copy(value: Any) -> Any:
    """Replicas share nothing, so that the request of each can be adjusted."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _check_env(role: Role, env: Mapping[str, object]) -> None:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or not isinstance(value, str) or "\0" in value:
            msg = (
                f"role `{role.name}`: the environment variable {name!r} cannot be set: names are "
                "not empty and have no `=`, values are text, and neither has a NUL character"
            )
            raise InvalidInput(msg)


def _mounts(role: Role) -> tuple[list[dict[str, object]], list[str]]:
    """Mounts and devices in the shape of Docker's API, where the SDK's types are dicts too."""
    mounts: list[dict[str, object]] = []
    devices: list[str] = []
    for mount in [*role.mounts, *get_device_mounts(role.resource.devices)]:
        match mount:
            case BindMount():
                mounts.append(_mount("bind", mount.src_path, mount.dst_path, mount.read_only))
            case VolumeMount():
                mounts.append(_mount("volume", mount.src, mount.dst_path, mount.read_only))
            case DeviceMount():
                devices.append(f"{mount.src_path}:{mount.dst_path}:{mount.permissions}")
            case _:
                msg = (
                    f"role `{role.name}`: {mount!r} is not a mount; "
                    "give a BindMount, VolumeMount or DeviceMount"
                )
                raise MountNotSupported(msg)
    return mounts, devices


def _mount(kind: str, source: str, target: str, read_only: bool) -> dict[str, object]:
    return {"Target": target, "Source": source, "Type": kind, "ReadOnly": read_only}


def _limits(role: Role) -> dict[str, object]:
    """What the resource and the retries of a role ask for; nothing for what they leave open."""
    resource = role.resource
    limits: dict[str, object] = {}
    if role.max_retries > 0:
        limits["restart_policy"] = {"Name": "on-failure", "MaximumRetryCount": role.max_retries}
    if resource.memMB >= 0:
        # without its own size /dev/shm has 64 MB, too little for data loaders
        limits["mem_limit"] = limits["shm_size"] = f"{int(resource.memMB)}m"
    if resource.cpu >= 0:
        limits["nano_cpus"] = int(resource.cpu * 1e9)
    if resource.gpu > 0:
        limits["device_requests"] = [
            {
                "Driver": "",
                "Count": resource.gpu,
                "DeviceIDs": [],
                "Capabilities": [["compute", "utility"]],
                "Options": {},
            }
        ]
    return limits
