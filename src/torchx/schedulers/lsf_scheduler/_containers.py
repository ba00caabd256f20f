"""Builds the command lines of docker and apptainer."""

import re
from collections.abc import Mapping, Sequence

from torchx.errors import InvalidInput, MountNotSupported, UnsupportedRequest
from torchx.schedulers.devices import get_device_mounts
from torchx.specs.api import BindMount, DeviceMount, Role, VolumeMount

from ._options import LsfOpts
from ._script import NAME_MARK, OURS_MARK

_CLIENT_READS = re.compile(
    r"PATH|HOME|USER|TMPDIR|(?:LD|DOCKER|XDG|GO|SSL|BUILDKIT|COMPOSE)_?.*|.*_PROXY", re.IGNORECASE
)
"""Variables with a meaning for docker's client, which are not put into its environment."""


def docker_words(
    role: Role, opts: LsfOpts, command: Sequence[str], env: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Builds the command line of docker's client, and its environment.

    Variables are passed by name, so that their values are not visible in ``ps``.
    """
    words = ["docker", "run", f"--name={NAME_MARK}", *_docker_mounts(role)]
    if opts.container_workdir:
        words += ["-w", opts.container_workdir]
    if opts.host_network:
        words += ["--net=host", "--ipc=host"]
    else:
        for port in role.port_map.values():
            words += ["-p", str(port)]
    if opts.shm_size:
        words.append(f"--shm-size={opts.shm_size}")
    words.append(OURS_MARK)
    through_client = []
    for name, value in env.items():
        if _CLIENT_READS.fullmatch(name):
            words += ["-e", f"{name}={value}"]
        else:
            words += ["-e", name]
            through_client.append((name, value))
    words += _docker_limits(role)
    words += ["--entrypoint", command[0], "--rm", role.image, *command[1:]]
    return tuple(words), tuple(through_client)


def _docker_mounts(role: Role) -> list[str]:
    words = []
    for mount in [*role.mounts, *get_device_mounts(role.resource.devices)]:
        match mount:
            case BindMount():
                _check_path(role, mount.src_path, ":")
                _check_path(role, mount.dst_path, ":")
                mode = "ro" if mount.read_only else "rw"
                words += ["-v", f"{mount.src_path}:{mount.dst_path}:{mode}"]
            case VolumeMount():
                _check_path(role, mount.src, ",")
                _check_path(role, mount.dst_path, ",")
                mode = ",ro" if mount.read_only else ""
                words += ["--mount", f"type=volume,src={mount.src},dst={mount.dst_path}{mode}"]
            case DeviceMount():
                device = f"{mount.src_path}:{mount.dst_path}:{mount.permissions}"
                words.append(f"--device={device}")
            case _:
                msg = (
                    f"role `{role.name}`: {mount!r} is not a mount; "
                    "give a BindMount, VolumeMount or DeviceMount"
                )
                raise MountNotSupported(msg)
    return words


def _docker_limits(role: Role) -> list[str]:
    resource = role.resource
    words = []
    if resource.cpu > 0:
        words.append(f"--cpus={resource.cpu}")
    if resource.memMB > 0:
        words.append(f"--memory={int(resource.memMB) * 1024 * 1024}")
    if resource.gpu > 0:
        words += ["--gpus", "all"]
        if "CUDA_VISIBLE_DEVICES" not in role.env:
            words += ["-e", "CUDA_VISIBLE_DEVICES"]  # those that LSF gave to the job
    return words


def apptainer_options(role: Role, opts: LsfOpts, folder: str) -> tuple[str, ...]:
    """Builds the options of ``apptainer exec``; the app's folder is visible inside."""
    words = ["--bind", folder]
    for mount in role.mounts:
        if not isinstance(mount, BindMount):
            msg = (
                f"role `{role.name}` has a {type(mount).__name__}, apptainer mounts directories "
                "of the host only: use a bind mount"
            )
            raise UnsupportedRequest(msg)
        for path in (mount.src_path, mount.dst_path):
            _check_path(role, path, ":,")
        mode = ":ro" if mount.read_only else ""
        words += ["--bind", f"{mount.src_path}:{mount.dst_path}{mode}"]
    if role.resource.gpu > 0:
        words.append("--nv")
    if opts.container_workdir:
        words += ["--pwd", opts.container_workdir]
    return tuple(words)


def _check_path(role: Role, path: str, bad: str) -> None:
    found = [char for char in path if char in bad or not char.isprintable()]
    if found:
        msg = f"role `{role.name}`: the path of a mount must not hold {found[0]!r}: {path!r}"
        raise InvalidInput(msg)
