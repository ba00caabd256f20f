"""Builds the native request: one container for each replica, as plain data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, MountNotSupported
from torchx.schedulers._core.checks import ends_on_failure
from torchx.schedulers._core.replicas import expand
from torchx.schedulers.devices import get_device_mounts
from torchx.settings import ENV_TORCHX_IMAGE, ENV_TORCHX_RANK0_HOST
from torchx.specs.api import (
    AppDef,
    BindMount,
    DeviceMount,
    RetryPolicy,
    Role,
    VolumeMount,
)
from torchx.version import __version__
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from ._options import Opts
from ._render import render_request

LABEL_VERSION: str = DockerWorkspaceMixin.LABEL_VERSION
LABEL_APP_ID: str = "torchx.pytorch.org/app-id"
LABEL_ROLE_NAME: str = "torchx.pytorch.org/role-name"
LABEL_REPLICA_ID: str = "torchx.pytorch.org/replica-id"
LABEL_ON_FAILURE: str = "torchx.pytorch.org/on-failure"
LABEL_MAX_RETRIES: str = "torchx.pytorch.org/max-retries"
"""Set only if there are retries: restarts of other containers need not be queried."""
LABEL_LAUNCHER: str = "torchx.pytorch.org/launcher"
"""The process that starts the container; added at the start."""
NETWORK = "torchx"
"""Name of the bridge network on which the replicas find each other by name."""
RANK0_ENV = ENV_TORCHX_RANK0_HOST

_PART_CHARS = 30
"""Characters kept of the app's id (its end) and of the role's name (its start)."""
_NAME_CHARS = 63
"""Most characters of a resolvable host name: one DNS label."""
_NAME = re.compile("[A-Za-z0-9_.-]+")

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
    """Images built in a registry: repository and tag of each, by name."""
    quiet: bool = False
    """True to hide the progress of pulls."""

    def __repr__(self) -> str:
        return render_request(self)

    __str__ = __repr__


def build_request(app: AppDef, app_id: str, opts: Opts, environ: Mapping[str, str]) -> DockerJob:
    """Builds the request of an app, which is not changed.

    Args:
        environ: environment that ``copy_env`` copies from.

    Raises:
        InvalidInput: if names of containers would be invalid or equal, or for an invalid option.
    """
    _warn_of_retries(app)
    env = {**_copied(opts.copy_env or (), environ), **(opts.env or {})}
    _check_env(env)
    labels = {
        LABEL_VERSION: __version__,
        LABEL_APP_ID: app_id,
        LABEL_ON_FAILURE: "end" if ends_on_failure(opts.on_failure) else "wait",
    }
    names = _names(app, app_id)
    env_end = {RANK0_ENV: container_name(app_id, app.roles[0].name, 0)}
    containers: list[DockerContainer] = []
    for role in app.roles:
        shared = {"privileged": opts.privileged, "network": NETWORK, **_of_role(role)}
        env_end[ENV_TORCHX_IMAGE] = role.image
        role_labels = {**labels, LABEL_ROLE_NAME: role.name}
        if role.max_retries > 0:
            role_labels[LABEL_MAX_RETRIES] = str(role.max_retries)
        for replica in expand(role, app_id, rank0_env=RANK0_ENV):
            name = names[role.name, replica.k]
            kwargs: dict[str, object] = {
                "name": name,
                "hostname": name,
                "environment": {**env, **replica.env, **env_end},
                "labels": {**role_labels, LABEL_REPLICA_ID: str(replica.k)},
                **{key: _copy(value) for key, value in shared.items()},
            }
            command = [role.entrypoint, *replica.args]
            containers.append(DockerContainer(role.image, command, kwargs))
    return DockerJob(app_id, containers)


def container_name(app_id: str, role_name: str, replica: int) -> str:
    """Returns the name of a replica's container, which is also its host name.

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


def _names(app: AppDef, app_id: str) -> dict[tuple[str, int], str]:
    """Returns the names of the containers by role and replica.

    Raises:
        InvalidInput: if Docker would refuse one, or two are equal.
    """
    owners: dict[str, str] = {}
    names = {}
    for role in app.roles:
        for k in range(role.num_replicas):
            name = container_name(app_id, role.name, k)
            if not _NAME.fullmatch(name):
                raise _bad_name(name, app, role)
            if name in owners:
                msg = (
                    f"roles `{owners[name]}` and `{role.name}` would both have a container "
                    f"`{name}`: give them names that differ in the first {_PART_CHARS} characters"
                )
                raise InvalidInput(msg)
            owners[name] = role.name
            names[role.name, k] = name
    return names


def _bad_name(name: str, app: AppDef, role: Role) -> InvalidInput:
    bad = sorted({c for c in name if not _NAME.fullmatch(c)})
    return InvalidInput(
        f"app `{app.name}` and role `{role.name}` cannot be parts of a container's name, "
        f"given: {', '.join(map(repr, bad))}; use letters, digits and any of _ . -"
    )


def _warn_of_retries(app: AppDef) -> None:
    if sum(role.num_replicas for role in app.roles) <= 1:
        return
    for role in app.roles:
        if role.max_retries > 0 and RetryPolicy(role.retry_policy) is RetryPolicy.APPLICATION:
            logger.warning(
                "role `%s`: when a replica fails, Docker restarts its container alone and not the "
                "whole application; retry policy REPLICA says so",
                role.name,
            )


def _copied(patterns: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables whose names match one of the patterns."""
    if not patterns:
        return {}
    from fnmatch import fnmatchcase

    return {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _check_env(env: Mapping[str, object]) -> None:
    """Refuses invalid variables from options; those of roles were checked before."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or not isinstance(value, str) or "\0" in value:
            msg = (
                f"the environment variable {name!r} of option `env` cannot be set: names are not "
                "empty and have no `=`, values are text, and neither has a NUL character"
            )
            raise InvalidInput(msg)


def _of_role(role: Role) -> dict[str, object]:
    """Returns the fields shared by the containers of a role."""
    mounts, devices = _mounts(role)
    return {"mounts": mounts, "devices": devices, **_limits(role)}


def _copy(value: Any) -> Any:
    """Copies a value, so that the request of each replica can be adjusted."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _mounts(role: Role) -> tuple[list[dict[str, object]], list[str]]:
    """Builds mounts and devices for Docker's API, where the SDK's types are dicts, too."""
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
    """Returns the limits from a role's resource and retries; omits unset ones."""
    resource = role.resource
    limits: dict[str, object] = {}
    if role.max_retries > 0:
        limits["restart_policy"] = {"Name": "on-failure", "MaximumRetryCount": role.max_retries}
    if resource.memMB >= 0:
        # the default of /dev/shm is 64 MB, too little for data loaders
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
