"""The native request: one heterogeneous component and one step for each role."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from torchx._startup.dataclass import light_dataclass, replace
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers._core.checks import check_min_replicas, ends_on_failure
from torchx.specs.api import AppDef, BindMount, CfgVal, Role

from ._job import safe_name
from ._macros import fill_macros, quote_macros
from ._options import (
    check_options,
    check_text,
    conflicts,
    invalid_reason,
    parse_args,
    parse_role_args,
    signal_to_steps,
)
from ._script import render_script

logger = get_logger(__name__)

GPUS_PER_NODE_SINCE = (24, 11)
JOB_OPTIONS = ("comment", "mail-user", "mail-type", "account")
"""Options of the whole job."""
COMPONENT_OPTIONS = ("partition", "time", "constraint", "qos")
_MORE_OPTIONS = ("reservation", "nodelist", "exclude", "dependency", "begin", "signal")
_NAME_MAX = 100
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@light_dataclass(frozen=True)
class Facts:
    """Inputs of a request that only the cluster knows."""

    version: tuple[int, int] = (24, 5)
    partition_mem_mb: int | None = None
    """Memory of the partition's nodes in MB; ``None`` if unknown."""
    by_node: bool | None = None
    """True if GPUs are counted by node rather than by task; ``None`` depends on the version."""

    @property
    def nomem(self) -> bool:
        """True if memory is not configured on the cluster, which would refuse requests for it."""
        return self.partition_mem_mb is not None and self.partition_mem_mb <= 1000

    @property
    def gpus_by_node(self) -> bool:
        """True if GPUs are counted by node rather than by task."""
        return self.version >= GPUS_PER_NODE_SINCE if self.by_node is None else self.by_node


@light_dataclass
class SlurmReplicaRequest:
    """A component of the job: all replicas of a role.

    In ``args`` and the values of ``env``, ``${app_id}`` and ``${replica_id}`` are filled in when a
    replica runs; ``$${app_id}`` is that literal text. Everything else is literal.

    Args:
        name: name of the component.
        srun_opts: value by name of the option; ``None`` for a flag.
        sbatch_opts: as ``srun_opts``.
        num_replicas: number of tasks, each on its own node.
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
    """Least number of replicas; ``None`` means ``num_replicas``."""
    work_dir: str | None = ""
    """Working directory of the replicas: a path, or empty for the directory of the job; ``None``
    for the one of their container's image.
    """

    @classmethod
    def from_role(
        cls,
        name: str,
        role: Role,
        cfg: Mapping[str, CfgVal],
        nomem: bool,
        container_image: str | None = None,
        gpus_by_node: bool = False,
        role_args: Mapping[str, str | None] | None = None,
    ) -> "SlurmReplicaRequest":
        """Builds the component of a role whose macros are filled in.

        Args:
            nomem: do not request memory.
            container_image: image of the pyxis plugin; ``None`` to run on the node itself.
            gpus_by_node: count GPUs by node rather than by task.
            role_args: further arguments of sbatch, which win over those for all roles.
        """
        return cls(
            name=name,
            entrypoint=role.entrypoint,
            args=list(role.args),
            srun_opts=_srun_opts(role, cfg, container_image),
            sbatch_opts=_sbatch_opts(role, cfg, nomem, gpus_by_node, role_args or {}),
            env=dict(role.env),
            num_replicas=role.num_replicas,
            role=role.name,
            image=role.image,
            min_replicas=role.min_replicas,
            work_dir=None if container_image else "",
        )

    @property
    def elastic(self) -> bool:
        """True if there may be fewer replicas than ``num_replicas``."""
        return self.min_replicas is not None and self.min_replicas < self.num_replicas

    @property
    def role_name(self) -> str:
        """Name of the role."""
        return self.role or self.name.rpartition("-")[0] or self.name

    def materialize(self) -> tuple[list[str], list[str]]:
        """Returns the arguments of the ``#SBATCH`` line, and those of srun as shell words.

        The second list ends with the command. The generated script passes the command and the
        environment to the replicas through srun's input, where other users cannot see them.
        """
        srun = [quote_macros(arg) for arg in self.srun_arguments()]
        command = [quote_macros(arg) for arg in (self.entrypoint, *self.args)]
        return self.materialize_sbatch(), [*srun, *command]

    def materialize_sbatch(self) -> list[str]:
        """Returns the arguments of the ``#SBATCH`` line."""
        return [f"--job-name={self.name}", *_flags(self.sbatch_opts)]

    def srun_arguments(self) -> list[str]:
        """Returns the options of srun, not quoted."""
        return [*_flags(self.srun_opts), "--export=ALL"]


@light_dataclass
class SlurmBatchRequest:
    """The native request of ``slurm``.

    Args:
        cmd: the sbatch command; the directory and the script follow.
        replicas: the components by name.
        job_dir: directory for script and logs; ``None`` for the working directory.
        images_to_push: name of the workspace builder and the images to push.
        app_name: shown by ``torchx list``.
        end_on_failure: a replica that fails ends the others.
    """

    cmd: list[str]
    replicas: dict[str, SlurmReplicaRequest]
    job_dir: str | None
    max_retries: int
    images_to_push: tuple[str, Any] | None = None
    app_name: str = ""
    end_on_failure: bool = True

    def materialize(self) -> str:
        """Renders the batch script."""
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
    """Builds the request of an app, which is not changed. Costs per role, not per replica.

    Args:
        builder: the workspace builder; with ``docker``, roles run in containers, where their
            workspaces are.
        work_dirs: by role name, for roles that do not run in the directory of the job.

    Raises:
        InvalidInput: if a value cannot be passed to Slurm unchanged.
        UnsupportedRequest: if the app requests something that Slurm does not support.
    """
    check_options(cfg)
    own_args = parse_role_args(cfg.get("role_args"), [role.name for role in app.roles])
    replicas: dict[str, SlurmReplicaRequest] = {}
    for role in app.roles:
        name = f"{safe_name(role.name)}-0"
        if name in replicas:
            msg = (
                f"two roles are named `{role.name}`, or nearly so; give each role of an app a name "
                "of its own in letters, digits, `.`, `_` and `-`"
            )
            raise InvalidInput(msg)
        image = role.image if builder == "docker" else cfg.get("container_image")
        request = _component(name, role, cfg, facts, image, own_args.get(role.name))
        if builder != "docker":
            request.work_dir = (work_dirs or {}).get(role.name, "")
        replicas[name] = request
    _warn_of_ranges(list(replicas.values()))
    job_dir = cfg.get("job_dir")
    return SlurmBatchRequest(
        cmd=["sbatch", "--parsable", *_flags(_given(cfg, JOB_OPTIONS))],
        replicas=replicas,
        job_dir=str(job_dir) if job_dir is not None else None,
        max_retries=min((role.max_retries for role in app.roles), default=0),
        images_to_push=images_to_push,
        app_name=app.name,
        end_on_failure=ends_on_failure(cfg.get("on_failure")),
    )


def _component(
    name: str,
    role: Role,
    cfg: Mapping[str, CfgVal],
    facts: Facts,
    image: CfgVal,
    role_args: Mapping[str, str | None] | None,
) -> SlurmReplicaRequest:
    check_text(f"the image of role `{role.name}`", image or role.image or None)
    check_role(role, in_container=bool(image))
    filled = fill_macros(role, "" if image else role.image)
    return SlurmReplicaRequest.from_role(
        name,
        filled,
        cfg,
        facts.nomem,
        str(image) if image else None,
        facts.gpus_by_node,
        role_args,
    )


def _warn_of_ranges(replicas: list[SlurmReplicaRequest]) -> None:
    elastic = [f"`{replica.role_name}`" for replica in replicas if replica.elastic]
    if len(elastic) > 1:
        logger.warning(
            "several roles have `min_replicas` (%s): Slurm gives each as many nodes as there are, "
            "and the job waits until the next has some as well; set `min_replicas` of one role "
            "only",
            ", ".join(elastic),
        )


def with_images(request: SlurmBatchRequest, named: Callable[[str], str]) -> SlurmBatchRequest:
    """Returns a copy of the request with other names of its images.

    Args:
        named: returns the new name of an image.
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
    """Raises ``InvalidInput`` or ``UnsupportedRequest`` for a role that cannot run."""
    if not role.name or not role.name.isprintable() or len(role.name) > _NAME_MAX:
        msg = (
            f"role name `{role.name!r:.80}` cannot be that of a job: use 1 to {_NAME_MAX} "
            "printable characters"
        )
        raise InvalidInput(msg)
    if role.mounts and not in_container:
        msg = (
            f"role `{role.name}` has mounts, which need a container: set the option "
            "`container_image` (pyxis plugin) or `workspace_type=docker`"
        )
        raise UnsupportedRequest(msg)
    check_min_replicas(role)
    for env_name in role.env:
        if not _ENV_NAME.fullmatch(env_name):
            msg = (
                f"`{env_name}` in the environment of role `{role.name}` is no name of a variable: "
                "use letters, digits and `_`, not beginning with a digit"
            )
            raise InvalidInput(msg)


# -- options ------------------------------------------------------------------------------------


def _sbatch_opts(
    role: Role,
    cfg: Mapping[str, CfgVal],
    nomem: bool,
    gpus_by_node: bool,
    role_args: Mapping[str, str | None],
) -> dict[str, str | None]:
    given = {**parse_args("sbatch", cfg.get("sbatch_args")), **role_args}
    most, least = role.num_replicas, role.min_replicas or role.num_replicas
    opts: dict[str, str | None] = {"requeue": None, **_given(cfg, COMPONENT_OPTIONS)}
    if least < most:
        # without the number of tasks Slurm takes the least number of nodes; the step then has as
        # many tasks as there are nodes
        opts |= {"nodes": f"{least}-{most}", "ntasks": str(most)}
    else:
        if most > 1:
            opts["nodes"] = str(most)
        opts["ntasks-per-node"] = "1"
    # counting by task needs the number of tasks, which depends on that of nodes
    opts |= _sizes(role, nomem, gpus_by_node or least < most, given)
    if "gpus-per-task" in opts or "gpus-per-task" in given:
        opts["ntasks"] = str(most)
    opts |= _given(cfg, _MORE_OPTIONS)
    if cfg.get("exclusive"):
        opts["exclusive"] = None
    opts.update(given)
    if signal := opts.get("signal"):
        opts["signal"] = signal_to_steps(signal)
    return opts


def _sizes(
    role: Role, nomem: bool, gpus_by_node: bool, given: Mapping[str, str | None]
) -> dict[str, str]:
    """Returns the sizes of a replica, without those given in another way."""
    resource = role.resource
    sizes = {
        "cpus-per-task": resource.cpu,
        "mem": 0 if nomem else resource.memMB,
        "gpus-per-node" if gpus_by_node else "gpus-per-task": resource.gpu,
    }
    return {
        name: str(size) for name, size in sizes.items() if size > 0 and not conflicts(name, given)
    }


def _srun_opts(
    role: Role, cfg: Mapping[str, CfgVal], container_image: str | None
) -> dict[str, str | None]:
    ends = ends_on_failure(cfg.get("on_failure"))
    spare = role.min_replicas is not None and role.min_replicas < role.num_replicas
    opts: dict[str, str | None] = {
        # how long others may run after a replica has ended; the default depends on the cluster
        "wait": "60" if ends and not spare else "0",
        "kill-on-bad-exit": "1" if ends else "0",
    }
    if container_image:
        opts["container-image"] = container_image
        mounts = _container_mounts(role, cfg)
        if mounts:
            opts["container-mounts"] = mounts
    return {**opts, **parse_args("srun", cfg.get("srun_args"))}


def _given(cfg: Mapping[str, CfgVal], names: tuple[str, ...]) -> dict[str, str | None]:
    return {name: str(value) for name in names if (value := cfg.get(name)) is not None}


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
            bad = "`:` or `,`" if ":" in path or "," in path else invalid_reason(path)
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
