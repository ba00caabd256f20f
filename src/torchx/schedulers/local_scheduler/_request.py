"""Builds the native request: what to run, where and with which environment, replica by replica."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput
from torchx.settings import ENV_TORCHX_RANK0_HOST
from torchx.specs._macros import MacroPlan
from torchx.specs.api import AppDef, Role, macros

from ._images import ImageProvider, ReplicaParam

STDOUT_LOG = "stdout.log"
STDERR_LOG = "stderr.log"
COMBINED_LOG = "combined.log"
NA = "<N/A>"
ENV_CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
RANK0_ENV = ENV_TORCHX_RANK0_HOST
NAME_BYTES_MAX = 200
"""Most bytes of names in file names, which may have 255 bytes with their suffixes."""


@light_dataclass
class PopenRequest:
    """The native request of ``local_cwd``."""

    app_id: str
    log_dir: str
    """Folder of the logs of this app."""
    role_params: dict[str, list[ReplicaParam]]
    """By role name; the position in the list is the replica's id."""
    role_log_dirs: dict[str, list[str]]
    """The folders of the replicas' logs, indexed like ``role_params``."""


def join_path(*parts: str | None) -> str:
    """Joins values of ``PATH``; empty ones and stray separators disappear."""
    return ":".join(p.strip(":") for p in parts if p and p.strip(":"))


def build_request(
    app: AppDef,
    app_id: str,
    app_log_dir: str,
    provider: "ImageProvider",
    prepend_cwd: bool = False,
    extra_paths: Sequence[str] = (),
) -> PopenRequest:
    """Builds the request of an app, which is not changed.

    Args:
        app_log_dir: folder for the logs of this app, which need not exist.
        provider: called once for each role, and once for each replica if it overrides
            ``get_replica_param``.
        extra_paths: directories in front of every replica's ``PATH``; may hold macros.

    Raises:
        InvalidInput: if names cannot be file names or are used twice.
    """
    check_names(app)
    request = PopenRequest(app_id, app_log_dir, {}, {})
    for role in app.roles:
        dirs = [f"{app_log_dir}/{role.name}/{k}" for k in range(role.num_replicas)]
        request.role_log_dirs[role.name] = dirs
        request.role_params[role.name] = _role_params(
            role, request, dirs, provider, prepend_cwd, extra_paths
        )
    return request


def check_names(app: AppDef) -> None:
    """Raises ``InvalidInput`` if a name cannot be a file name."""
    _check_name("app", app.name)
    for role in app.roles:
        _check_name("role", role.name)


def _check_name(what: str, name: str) -> None:
    bad = [c for c in name if c in "/\\" or not c.isprintable()]
    if not name or name in (".", "..") or bad or _bytes_of(name) > NAME_BYTES_MAX:
        msg = (
            f"{what} name `{name!r:.80}` cannot be part of a file name: use 1 to {NAME_BYTES_MAX} "
            "printable characters other than / and \\"
        )
        raise InvalidInput(msg)


def _bytes_of(name: str) -> int:
    return len(name.encode("utf-8", "surrogateescape"))


def _role_params(
    role: Role,
    request: PopenRequest,
    dirs: list[str],
    provider: "ImageProvider",
    prepend_cwd: bool,
    extra_paths: Sequence[str],
) -> list[ReplicaParam]:
    role = _shallow_copy(role)
    img_root = provider.fetch_role(role)
    cwd = provider.get_cwd(role.image)
    path = join_path(*extra_paths, role.env.get("PATH"))
    role.env["PATH"] = join_path(cwd, path) if prepend_cwd else join_path(path, cwd)
    role.env[RANK0_ENV] = "localhost"
    pet_log_dir = f"{request.log_dir}/torchelastic/{role.name}"
    plan = MacroPlan(role)
    simple = _is_simple(provider)
    entrypoint = provider.get_entrypoint(img_root, role) if simple else ""
    params = []
    for k, directory in enumerate(dirs):
        values = macros.Values(
            img_root=img_root, app_id=request.app_id, replica_id=str(k), rank0_env=RANK0_ENV
        )
        logs = (
            f"{directory}/{STDOUT_LOG}",
            f"{directory}/{STDERR_LOG}",
            f"{directory}/{COMBINED_LOG}",
        )
        if simple:
            args = [entrypoint, *plan.args(values)]
            param = ReplicaParam(args, plan.env(values), *logs, cwd)
        else:
            param = provider.get_replica_param(img_root, values.apply(role), *logs)
        param.env.setdefault("TORCHELASTIC_ERROR_FILE", f"{directory}/error.json")
        param.env.setdefault("PET_LOG_DIR", pet_log_dir)
        params.append(param)
    return params


def _is_simple(provider: "ImageProvider") -> bool:
    return type(provider).get_replica_param is ImageProvider.get_replica_param


def _shallow_copy(role: Role) -> Role:
    """Returns a copy whose environment may be changed."""
    import copy

    copied = copy.copy(role)
    copied.env = dict(role.env)
    return copied


def partition_gpus(
    request: PopenRequest, app: AppDef, enabled: bool, count: Callable[[], int]
) -> str | None:
    """Gives each replica its own GPUs by ``CUDA_VISIBLE_DEVICES``.

    Args:
        enabled: the option; if off, nothing is changed.
        count: counts the GPUs of this machine; called only if there is something to hand out.

    Returns:
        A warning for the user, ``None`` if there is none.
    """
    wanted = sum(r.num_replicas * max(r.resource.gpu, 0) for r in app.roles)
    if wanted <= 0:
        return None
    if not enabled:
        wanted = sum(
            r.num_replicas * max(r.resource.gpu, 0)
            for r in app.roles
            if ENV_CUDA_VISIBLE_DEVICES not in r.env  # such a role chooses its own
        )
        if wanted == 0:
            return None
        return (
            f"the roles ask for {wanted} GPUs, but `auto_set_cuda_visible_devices` is off: "
            "every replica sees all GPUs of this machine"
        )
    available = count()
    if wanted > available:
        return (
            f"the roles ask for {wanted} GPUs, this machine has {available} (by `nvidia-smi -L`): "
            f"{ENV_CUDA_VISIBLE_DEVICES} is not set for any replica"
        )
    at = 0
    for role in app.roles:
        gpus = role.resource.gpu
        if gpus <= 0:
            continue
        for param in request.role_params[role.name]:
            param.env[ENV_CUDA_VISIBLE_DEVICES] = ",".join(map(str, range(at, at + gpus)))
            at += gpus
    return None


def beyond_memory(app: AppDef, memory_mb: int) -> list[str]:
    """Returns warnings for roles that request more memory than this machine has."""
    return [
        f"role `{role.name}` asks for {role.resource.memMB} MB of memory, this machine has"
        f" {memory_mb}: `local_cwd` limits none, and runs it with what there is"
        for role in app.roles
        if role.resource.memMB > memory_mb
    ]


def render_request(request: PopenRequest) -> str:
    """Renders the request as text that Python can parse."""
    lines = [
        "{ 'app_id': " + repr(request.app_id) + ",",
        "  'log_dir': " + repr(request.log_dir) + ",",
        "  'role_params': {",
    ]
    for name, params in request.role_params.items():
        lines.append(f"    {name!r}: [")
        for p in params:
            env = "".join(f"\n                 {k!r}: {v!r}," for k, v in p.env.items())
            lines.append(
                f"      {{ 'args': {p.args!r},\n        'env': {{{env}\n               }},\n"
                f"        'stdout': {p.stdout!r},\n        'stderr': {p.stderr!r},\n"
                f"        'combined': {p.combined!r},\n        'cwd': {p.cwd!r}}},"
            )
        lines.append("    ],")
    lines.append("  },")
    lines.append("  'role_log_dirs': {")
    for name, dirs in request.role_log_dirs.items():
        lines.append(f"    {name!r}: [")
        lines += [f"      {d!r}," for d in dirs]
        lines.append("    ],")
    lines.append("  }}")
    return "\n".join(lines)


def supervisor_roles(
    request: PopenRequest, retries: Mapping[str, tuple[int, str]], cwd: str
) -> list[dict[str, Any]]:
    """Returns the roles for the supervisor, each with the differences of its replicas.

    Args:
        retries: maximum and policy by role name; a role that is missing is not retried.
        cwd: directory for replicas that name none.
    """
    roles: list[dict[str, Any]] = []
    for name, params in request.role_params.items():
        dirs = request.role_log_dirs[name]
        if not params or len(params) != len(dirs):
            msg = f"role `{name}` has {len(params)} replicas and {len(dirs)} log directories"
            raise InvalidInput(msg)
        base = params[0]
        max_retries, policy = retries.get(name, (0, "APPLICATION"))
        roles.append(
            {
                "name": name,
                "args": base.args,
                "env": base.env,
                "cwd": base.cwd or cwd,
                "dirs": dirs,
                "max_retries": max_retries,
                "policy": policy,
                "vary": {k: d for k, p in enumerate(params) if (d := _difference(base, p))},
            }
        )
    return roles


def _difference(
    base: ReplicaParam, param: ReplicaParam
) -> tuple[list[str] | None, dict[str, str], tuple[str, ...], str | None] | None:
    """Returns the changes to ``base``: arguments, variables, removed variables, directory."""
    args = None if param.args == base.args else param.args
    env = {n: v for n, v in param.env.items() if base.env.get(n) != v}
    gone = tuple(n for n in base.env if n not in param.env)
    cwd = None if param.cwd == base.cwd else param.cwd
    return (args, env, gone, cwd) if args or env or gone or cwd else None
