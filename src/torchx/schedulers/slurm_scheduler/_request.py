"""The native request: one heterogeneous component and one step for each role."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.settings import ENV_TORCHX_RANK0_HOST
from torchx.specs._macros import MacroPlan
from torchx.specs.api import AppDef, BindMount, CfgVal, RetryPolicy, Role, macros

from ._options import check_options, check_text, has_rival, parse_args, signal_to_steps, unfit

RANK0_ENV = ENV_TORCHX_RANK0_HOST
GPUS_PER_NODE_SINCE = (24, 11)
DIRTY = re.compile(r"[^A-Za-z0-9._-]")
_NAME_MAX = 100
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# what a macro is while others are filled in: arguments and variables cannot hold NUL
_APP_ID, _REPLICA_ID = "\0a", "\0k"
_LIVE = {_APP_ID: macros.app_id, _REPLICA_ID: macros.replica_id}
_DOLLARS_BEFORE_NAME = re.compile(r"(\$+)(?=\{(?:app_id|replica_id)\})")


@dataclass(frozen=True)
class Facts:
    """What a request depends on and only the cluster knows."""

    version: tuple[int, int] = (24, 5)
    partition_mem_mb: int | None = None
    """Memory that the partition says its nodes have; ``None`` if that is not known."""

    @property
    def nomem(self) -> bool:
        """Whether the cluster leaves memory unconfigured, and would refuse any request for it."""
        return self.partition_mem_mb is not None and self.partition_mem_mb <= 1000


@dataclass
class SlurmReplicaRequest:
    """One component of the job: all replicas of a role.

    In ``args`` and the values of ``env``, ``${app_id}`` and ``${replica_id}`` stand for what is
    known when a replica runs; ``$${app_id}`` is that text itself. Everything else is literal.

    Args:
        name: name of the component.
        srun_opts: value by name of the option; ``None`` for a flag.
        sbatch_opts: as ``srun_opts``.
        num_replicas: how many tasks, each on a node of its own.
        role: name of the role; empty for the part of ``name`` before the last ``-``.
    """

    name: str
    entrypoint: str
    args: list[str]
    srun_opts: dict[str, str | None]
    sbatch_opts: dict[str, str | None]
    env: dict[str, str]
    num_replicas: int = 1
    role: str = ""
    image: str = ""
    min_replicas: int | None = None
    """How few will do; ``None`` means ``num_replicas``."""
    work_dir: str | None = ""
    """Where the replicas run: a path, or empty for the directory of the job; ``None`` for the one
    that the image of their container says."""

    @classmethod
    def from_role(
        cls,
        name: str,
        role: Role,
        cfg: Mapping[str, CfgVal],
        nomem: bool,
        container_image: str | None = None,
    ) -> "SlurmReplicaRequest":
        """The component of a role whose macros are filled in.

        Args:
            nomem: ask for no memory.
            container_image: image of the pyxis plugin; ``None`` to run on the node itself.
        """
        import torchx.schedulers.slurm_scheduler as package

        # clients replace that name to choose the flags
        by_node = role.resource.gpu > 0 and package._should_use_gpus_per_node_from_version()
        sbatch_opts = _sbatch_opts(role, cfg, nomem, by_node)
        srun_opts: dict[str, str | None] = {"wait": "60", "kill-on-bad-exit": "1"}
        if container_image:
            srun_opts["container-image"] = container_image
            mounts = _container_mounts(role, cfg)
            if mounts:
                srun_opts["container-mounts"] = mounts
        srun_args = cfg.get("srun_args")
        srun_opts.update(parse_args("srun", str(srun_args) if srun_args else None))
        return cls(
            name=name,
            entrypoint=role.entrypoint,
            args=list(role.args),
            srun_opts=srun_opts,
            sbatch_opts=sbatch_opts,
            env=dict(role.env),
            num_replicas=role.num_replicas,
            role=role.name,
            image=role.image,
            min_replicas=role.min_replicas,
            work_dir=None if container_image else "",
        )

    @property
    def elastic(self) -> bool:
        """Whether there may be fewer replicas than ``num_replicas``."""
        return self.min_replicas is not None and self.min_replicas < self.num_replicas

    @property
    def role_name(self) -> str:
        """Name of the role."""
        return self.role or self.name.rpartition("-")[0] or self.name

    def materialize(self) -> tuple[list[str], list[str]]:
        """The arguments of the ``#SBATCH`` line, and those of srun as shell words.

        The second list ends with the command. The generated script hands the command and the
        environment to the replicas by srun's input, where other users cannot see them.
        """
        srun = [quote_macros(arg) for arg in self.srun_arguments()]
        command = [quote_macros(arg) for arg in (self.entrypoint, *self.args)]
        return self.materialize_sbatch(), [*srun, *command]

    def materialize_sbatch(self) -> list[str]:
        """The arguments of the ``#SBATCH`` line."""
        return [f"--job-name={self.name}", *_flags(self.sbatch_opts)]

    def srun_arguments(self) -> list[str]:
        """The options of srun, not quoted."""
        return [*_flags(self.srun_opts), "--export=ALL"]


@dataclass
class SlurmBatchRequest:
    """The native request of ``slurm``.

    Args:
        cmd: the sbatch command; the directory and the script follow.
        replicas: the components by their name.
        job_dir: directory for script and logs; ``None`` for the working directory.
        images_to_push: name of the workspace builder and what it pushes.
        app_name: shown by ``torchx list``.
    """

    cmd: list[str]
    replicas: dict[str, SlurmReplicaRequest]
    job_dir: str | None
    max_retries: int
    images_to_push: tuple[str, Any] | None = None
    app_name: str = ""

    def materialize(self) -> str:
        """The batch script."""
        from ._script import render_script

        return render_script(self)

    def __repr__(self) -> str:
        banner = "#----------------\n# SBATCH_SCRIPT\n#----------------"
        return f"{' '.join(self.cmd)} $SBATCH_SCRIPT\n\n{banner}\n{self.materialize()}"


def build_request(
    app: AppDef,
    cfg: Mapping[str, CfgVal],
    facts: Facts,
    builder: str = "dir",
    images_to_push: tuple[str, Any] | None = None,
    work_dirs: Mapping[str, str] | None = None,
) -> SlurmBatchRequest:
    """The request of an app, which is left as it is. Costs per role, not per replica.

    Args:
        builder: the workspace builder; with ``docker``, roles run in containers, where their
            workspaces are.
        work_dirs: by the names of roles, those that run elsewhere than in the directory of the job.

    Raises:
        InvalidInput: if a value cannot be handed to Slurm as it is.
        UnsupportedRequest: if the app asks for what Slurm does not do.
    """
    check_options(cfg)
    replicas: dict[str, SlurmReplicaRequest] = {}
    for role in app.roles:
        image = role.image if builder == "docker" else cfg.get("container_image")
        check_text(f"the image of role `{role.name}`", image)
        check_role(role, in_container=bool(image))
        root = "" if image else role.image
        filled = fill_macros(role, root)
        name = f"{safe_name(role.name)}-0"
        if name in replicas:
            msg = (
                f"two roles are named `{role.name}`, or nearly so; give each role of an app a name "
                "of its own in letters, digits, `.`, `_` and `-`"
            )
            raise InvalidInput(msg)
        request = SlurmReplicaRequest.from_role(
            name, filled, cfg, facts.nomem, str(image) if image else None
        )
        if builder != "docker":
            request.work_dir = (work_dirs or {}).get(role.name, "")
        replicas[name] = request
    _warn_of_ranges(list(replicas.values()))
    cmd = ["sbatch", "--parsable"]
    for option in ("comment", "mail-user", "mail-type", "account"):
        value = cfg.get(option)
        if value is not None:
            cmd.append(f"--{option}={value}")
    job_dir = cfg.get("job_dir")
    return SlurmBatchRequest(
        cmd=cmd,
        replicas=replicas,
        job_dir=str(job_dir) if job_dir is not None else None,
        max_retries=min((role.max_retries for role in app.roles), default=0),
        images_to_push=images_to_push,
        app_name=app.name,
    )


def _warn_of_ranges(replicas: list[SlurmReplicaRequest]) -> None:
    elastic = [f"`{replica.role_name}`" for replica in replicas if replica.elastic]
    if len(elastic) < 2:
        return
    from torchx._startup.lazy_logger import get_logger

    get_logger(__name__).warning(
        "several roles have `min_replicas` (%s): Slurm gives each as many nodes as there are, and "
        "the job waits until the next has some as well; set `min_replicas` of one role only",
        ", ".join(elastic),
    )


def with_images(request: SlurmBatchRequest, named: Callable[[str], str]) -> SlurmBatchRequest:
    """A copy of the request with other names of its images.

    Args:
        named: gives the new name of an image.
    """
    replicas = {}
    for name, replica in request.replicas.items():
        srun_opts = dict(replica.srun_opts)
        image = srun_opts.get("container-image")
        if image:
            srun_opts["container-image"] = named(image)
        replicas[name] = replace(replica, srun_opts=srun_opts, image=named(replica.image))
    return replace(request, replicas=replicas)


def check_role(role: Role, in_container: bool = False) -> None:
    """Raises ``InvalidInput`` or ``UnsupportedRequest`` for what cannot run as it is written."""
    if not role.name or not role.name.isprintable() or len(role.name) > _NAME_MAX:
        msg = (
            f"role name `{role.name!r:.80}` cannot be that of a job: use 1 to {_NAME_MAX} "
            "printable characters"
        )
        raise InvalidInput(msg)
    if role.max_retries > 0 and role.retry_policy is not RetryPolicy.APPLICATION:
        msg = (
            f"slurm restarts the whole job, role `{role.name}` asks for retries of "
            f"{RetryPolicy(role.retry_policy).name}; use RetryPolicy.APPLICATION"
        )
        raise UnsupportedRequest(msg)
    if role.mounts and not in_container:
        msg = (
            f"role `{role.name}` has mounts, which need a container: set the option "
            "`container_image` (pyxis plugin) or `workspace_type=docker`"
        )
        raise UnsupportedRequest(msg)
    least = role.min_replicas
    if least is not None and not 1 <= least <= role.num_replicas:
        msg = (
            f"`min_replicas` of role `{role.name}` must be from 1 to `num_replicas` "
            f"({role.num_replicas}), given: {least}"
        )
        raise InvalidInput(msg)
    _check_texts(role)


def _check_texts(role: Role) -> None:
    values = (role.image, role.entrypoint, *role.args, *role.env.values(), *role.env)
    bad = next(filter(None, map(unfit, values)), None)
    if bad:
        msg = (
            f"the image, command or environment of role `{role.name}` holds {bad}, which "
            "no process can receive"
        )
        raise InvalidInput(msg)
    for name in role.env:
        if not _ENV_NAME.fullmatch(name):
            msg = (
                f"`{name}` in the environment of role `{role.name}` is no name of a variable: use "
                "letters, digits and `_`, not beginning with a digit"
            )
            raise InvalidInput(msg)


def safe_name(name: str) -> str:
    """The name with what does not belong into file names and ``#SBATCH`` lines replaced.

    >>> safe_name("train/a b")
    'train_a_b'
    """
    return DIRTY.sub("_", name)


# -- macros -------------------------------------------------------------------------------------


def fill_macros(role: Role, img_root: str) -> Role:
    """A copy whose ``args`` and ``env`` hold only the macros that the node resolves."""
    import copy

    values = macros.Values(
        img_root=img_root, app_id=_APP_ID, replica_id=_REPLICA_ID, rank0_env=RANK0_ENV
    )
    plan = MacroPlan(role)
    copied = copy.copy(role)
    copied.args = [_to_request(arg) for arg in plan.args(values)]
    copied.env = {name: _to_request(value) for name, value in plan.env(values).items()}
    return copied


def _to_request(text: str) -> str:
    """NUL-marked macros as ``${app_id}``, and such text itself as ``$${app_id}``."""
    if "\0" not in text and "{" not in text:
        return text
    text = _DOLLARS_BEFORE_NAME.sub(r"\1\1", text)
    for mark, macro in _LIVE.items():
        if mark in text:
            # what precedes a macro must not take its dollar away
            parts = [p + "$" * (len(p) - len(p.rstrip("$"))) for p in text.split(mark)[:-1]]
            text = macro.join([*parts, text.split(mark)[-1]])
    return text


def split_macros(text: str) -> list[str]:
    """Literal texts at even places, ``app_id`` or ``replica_id`` at odd ones.

    >>> split_macros("run_${app_id}_x$${app_id}")
    ['run_', 'app_id', '_x${app_id}']
    """
    parts = [""]
    at = 0
    for match in _MACRO.finditer(text):
        dollars, name = match.groups()
        parts[-1] += text[at : match.start()] + "$" * (len(dollars) // 2)
        at = match.end()
        if len(dollars) % 2:
            parts += [name, ""]
        else:
            parts[-1] += "{" + name + "}"
    parts[-1] += text[at:]
    return parts


_MACRO = re.compile(r"(\$+)\{(app_id|replica_id)\}")
_IN_SHELL = {"app_id": '"$SLURM_JOB_ID"', "replica_id": '"$SLURM_PROCID"'}


def quote_macros(text: str) -> str:
    """The text as a word of the shell, in which only the two macros are live.

    >>> quote_macros("hi ${app_id}")
    '\\'hi \\'"$SLURM_JOB_ID"\\'\\''
    >>> print(quote_macros("$HOME"))
    '$HOME'
    """
    import shlex

    if "{" not in text:
        return shlex.quote(text)
    parts = split_macros(text)
    return "".join(_IN_SHELL[part] if i % 2 else shlex.quote(part) for i, part in enumerate(parts))


# -- options ------------------------------------------------------------------------------------

_PLACE = ("partition", "time", "constraint", "qos")
_MORE_PLACE = ("reservation", "nodelist", "exclude", "dependency", "begin", "signal")


def _sbatch_opts(
    role: Role, cfg: Mapping[str, CfgVal], nomem: bool, gpus_by_node: bool
) -> dict[str, str | None]:
    extra = cfg.get("sbatch_args")
    given = parse_args("sbatch", str(extra) if extra else None)
    opts: dict[str, str | None] = {"requeue": None}
    _add_set(opts, cfg, _PLACE)
    most, least = role.num_replicas, role.min_replicas or role.num_replicas
    if least < most:
        # without the number of tasks Slurm takes the least number of nodes; how many tasks each
        # node gets is left to the step, whose tasks are as many as the nodes then are
        opts["nodes"], opts["ntasks"] = f"{least}-{most}", str(most)
    else:
        if most > 1:
            opts["nodes"] = str(most)
        opts["ntasks-per-node"] = "1"
    resource = role.resource
    if resource.cpu > 0 and not has_rival("cpus-per-task", given):
        opts["cpus-per-task"] = str(resource.cpu)
    if resource.memMB > 0 and not nomem and not has_rival("mem", given):
        opts["mem"] = str(resource.memMB)
    # by task needs the number of tasks, which varies with that of nodes
    gpus = "gpus-per-node" if gpus_by_node or least < most else "gpus-per-task"
    if resource.gpu > 0 and not has_rival(gpus, given):
        opts[gpus] = str(resource.gpu)
    if "gpus-per-task" in opts or "gpus-per-task" in given:
        opts["ntasks"] = str(most)
    _add_set(opts, cfg, _MORE_PLACE)
    if cfg.get("exclusive"):
        opts["exclusive"] = None
    opts.update(given)
    if signal := opts.get("signal"):
        opts["signal"] = signal_to_steps(signal)
    return opts


def _add_set(
    opts: dict[str, str | None], cfg: Mapping[str, CfgVal], names: tuple[str, ...]
) -> None:
    for name in names:
        value = cfg.get(name)
        if value is not None:
            opts[name] = str(value)


def _container_mounts(role: Role, cfg: Mapping[str, CfgVal]) -> str:
    mounts = []
    for mount in role.mounts:
        if not isinstance(mount, BindMount):
            msg = (
                f"role `{role.name}` has a {type(mount).__name__}, containers of slurm mount "
                "directories of the nodes only; use a bind mount"
            )
            raise UnsupportedRequest(msg)
        for path in (mount.src_path, mount.dst_path):
            bad = "`:` or `,`" if ":" in path or "," in path else unfit(path)
            if bad:
                msg = f"the path of a mount must not hold {bad}, given: {path!r}"
                raise InvalidInput(msg)
        mode = ":ro" if mount.read_only else ""
        mounts.append(f"{mount.src_path}:{mount.dst_path}{mode}")
    if cfg.get("container_mounts"):
        mounts.append(str(cfg["container_mounts"]))
    return ",".join(mounts)


def _flags(opts: Mapping[str, str | None]) -> list[str]:
    return [f"--{name}" if value is None else f"--{name}={value}" for name, value in opts.items()]
