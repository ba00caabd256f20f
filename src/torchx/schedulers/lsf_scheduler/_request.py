"""The native request: a job array for each role, or one parallel job for all."""

import copy
import posixpath
import shlex
from collections.abc import Mapping, Sequence

from torchx._startup.dataclass import field, light_dataclass
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers._core.checks import check_min_replicas, ends_on_failure
from torchx.settings import ENV_TORCHX_RANK0_HOST
from torchx.specs._macros import MacroPlan
from torchx.specs.api import AppDef, CfgVal, RetryPolicy, Role, macros

from ._containers import apptainer_options, docker_words
from ._job import MARK, AppRecord, RoleNote, job_name, role_stems
from ._options import LsfOpts, check_options, notify_flags, split_bsub_args
from ._script import REPLICA_MARK, REQUEUE_CODE, Launch, render_gang, render_role

logger = get_logger(__name__)


@light_dataclass(frozen=True)
class Facts:
    """Inputs of a request that only this machine knows."""

    cwd: str = "."
    """Working directory of roles whose image is not a directory."""
    home: str = "~/.torchx"
    """TorchX's own directory."""
    dirs: frozenset[str] = frozenset()
    """The roles' images that are directories."""


@light_dataclass(frozen=True)
class LsfJob:
    """A call of bsub."""

    name: str
    argv: tuple[str, ...]
    scripts: Mapping[str, str]
    """Files written into the folder of the app before, by name."""

    @property
    def app_id(self) -> str:
        """The app that it belongs to."""
        return self.name.partition(".")[0]


@light_dataclass
class LsfBsub:
    """The native request of ``lsf``. Its text is a script that would submit the same.

    Args:
        jobdir: shared directory, in which the app gets its own folder; ``None`` for TorchX's
            directory in the home.
        cmd: the command that would run the script.
    """

    jobdir: str | None
    app_id: str
    app: AppDef
    cfg: Mapping[str, CfgVal]
    cmd: list[str]
    facts: Facts = field(default_factory=Facts)

    @property
    def folder(self) -> str:
        """The folder of the app."""
        base = self.jobdir if self.jobdir is not None else f"{self.facts.home}/lsf"
        return posixpath.normpath(posixpath.join(self.facts.cwd, base, self.app_id))

    @property
    def record(self) -> AppRecord:
        """Returns the record for the folder of the app."""
        stems = role_stems([role.name for role in self.app.roles])
        roles = [
            RoleNote(r.name, stem, r.num_replicas, r.image, r.max_retries, _least(r))
            for r, stem in zip(self.app.roles, stems, strict=True)
        ]
        ends = ends_on_failure(self.cfg.get("on_failure"))
        return AppRecord(self.app.name, tuple(roles), ends, bool(self.cfg.get("gang")))

    def jobs(self) -> list[LsfJob]:
        """Returns the jobs in order of submission. Costs per role, not per replica."""
        opts = self.cfg if isinstance(self.cfg, LsfOpts) else LsfOpts.from_cfg(self.cfg)
        return _gang_job(self, opts) if opts.gang else _array_jobs(self, opts)

    def materialize(self, rank0_host: str = "RANK0_HOST") -> str:
        """Renders the script, which is only shown: ``schedule`` calls bsub itself.

        Args:
            rank0_host: without effect: replicas learn the host of the first one when they run.
        """
        folder = shlex.quote(self.folder)
        lines = ["#!/bin/bash", "set -e", f"mkdir -p {folder}/notes {folder}/logs"]
        for job in self.jobs():
            for name, text in job.scripts.items():
                end = _delimiter(text, "END_OF_SCRIPT")
                lines.append(f"\ncat >{folder}/{name} <<'{end}'\n{text}{end}")
            lines.append(shlex.join(job.argv))
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        banner = "#------------\n# BSUB_SCRIPT\n#------------"
        return f"{' '.join(self.cmd)} $BSUB_SCRIPT\n\n{banner}\n{self.materialize()}"


def build_request(app: AppDef, app_id: str, opts: LsfOpts, facts: Facts) -> LsfBsub:
    """Builds the request of an app, which is not changed.

    Raises:
        InvalidInput: if a value cannot be passed to LSF unchanged.
        UnsupportedRequest: if the app requests something that LSF does not support.
    """
    check_options(opts)
    own = copy.copy(app)
    own.roles = [copy.copy(role) for role in app.roles]
    for role in own.roles:
        role.args, role.env, role.mounts = list(role.args), dict(role.env), list(role.mounts)
    request = LsfBsub(opts.jobdir, app_id, own, opts, ["/bin/bash"], facts)
    _check_folder(request.folder, opts.gang)
    _warn_of_retries(app, opts.gang)
    for role in app.roles:
        _check_role(role, runtime_of(role, opts, facts))
    request.jobs()  # which refuses unsupported values
    return request


def runtime_of(role: Role, opts: LsfOpts, facts: Facts) -> str:
    """Returns the runtime of a role's replicas."""
    if runs_on_host(role.image, opts.runtime, role.image in facts.dirs):
        return "none"
    return opts.runtime or "docker"


def runs_on_host(image: str, runtime: CfgVal, is_dir: bool) -> bool:
    """Returns True if the replicas of a role run without a container.

    >>> runs_on_host("", None, False), runs_on_host("ubuntu:24.04", None, False)
    (True, False)

    Args:
        runtime: the option.
        is_dir: whether the image is a directory.
    """
    return (not image or is_dir) if runtime is None else runtime == "none"


# -- checks -------------------------------------------------------------------------------------


def _check_folder(folder: str, gang: bool) -> None:
    bad = {char for char in folder if not char.isprintable() or char in "%:,"}
    if gang:
        bad |= {char for char in folder if not (char.isalnum() or char in "/_.-+@=~")}
    if bad:
        chars = " ".join(repr(char) for char in sorted(bad))
        msg = f"option `jobdir`: LSF gives {chars} in a path a meaning of its own: `{folder}`"
        raise InvalidInput(msg)


def _warn_of_retries(app: AppDef, gang: bool) -> None:
    if gang or sum(role.num_replicas for role in app.roles) == 1:
        return
    for role in app.roles:
        if role.max_retries <= 0:
            continue
        if RetryPolicy(role.retry_policy) is RetryPolicy.APPLICATION:
            logger.warning(
                "role `%s`: when a replica fails, LSF starts it alone again and not the whole "
                "application; retry policy REPLICA says so, and option `gang` starts all again",
                role.name,
            )


def _check_role(role: Role, runtime: str) -> None:
    if not role.name or not role.name.isprintable():
        msg = f"role name {role.name!r:.80} must be one or more printable characters"
        raise InvalidInput(msg)
    if role.num_replicas < 1:
        msg = f"role `{role.name}` must have at least one replica, given: {role.num_replicas}"
        raise InvalidInput(msg)
    check_min_replicas(role)
    if runtime == "none" and role.mounts:
        msg = (
            f"role `{role.name}` has `mounts`, which need a container: set the option `runtime` "
            "to `docker` or `apptainer`"
        )
        raise UnsupportedRequest(msg)
    if runtime != "none" and (not role.image or role.image.startswith("-")):
        msg = f"role `{role.name}` runs with {runtime} and has no image, given: {role.image!r}"
        raise InvalidInput(msg)
    if runtime != "docker" and "=" in role.entrypoint:
        msg = f"the program of role `{role.name}` has a `=` in its name: `{role.entrypoint}`"
        raise InvalidInput(msg)
    for name in role.env:
        if name.startswith("-"):
            msg = f"role `{role.name}`: `{name}` cannot be the name of an environment variable"
            raise InvalidInput(msg)


# -- jobs ---------------------------------------------------------------------------------------


def _array_jobs(request: LsfBsub, opts: LsfOpts) -> list[LsfJob]:
    record = request.record
    jobs = []
    for index, (role, note) in enumerate(zip(request.app.roles, record.roles, strict=True)):
        name = job_name(request.app_id, index, note.stem)
        script = f"role-{index}.sh"
        argv = _argv(request, opts, f"{name}[1-{role.num_replicas}]", f"lsf-{index}-%I.txt")
        argv += _placement(opts, max(int(role.resource.cpu), 0), role.resource.memMB)
        argv += _gpus(role.resource.gpu, exclusive=True)
        argv += _last(request, opts, "/bin/sh", script, note.max_retries)
        text = _role_script(request, opts, index, note, opts.on_failure == "end")
        jobs.append(LsfJob(name, tuple(argv), {script: text}))
    return jobs


def _gang_job(request: LsfBsub, opts: LsfOpts) -> list[LsfJob]:
    record = request.record
    resources = [role.resource for role in request.app.roles]
    cpus = max(1, *(int(resource.cpu) for resource in resources))
    replicas = sum(role.num_replicas for role in request.app.roles)
    retries = min(role.max_retries for role in request.app.roles)
    name = job_name(request.app_id, None)
    argv = [*_argv(request, opts, name, "lsf-gang.txt"), "-n", str(cpus * replicas)]
    mem = max(resource.memMB for resource in resources)
    span = [] if "span[" in (opts.resource_req or "") or cpus == 1 else [f"span[block={cpus}]"]
    argv += _requirements(opts, span, mem)
    argv += _gpus(max(resource.gpu for resource in resources), exclusive=False)
    argv += _last(request, opts, "/bin/bash", "gang.sh", retries)
    ends = opts.on_failure == "end"
    scripts = {"gang.sh": render_gang(request.folder, record.roles, cpus, retries, ends)}
    for index, note in enumerate(record.roles):
        scripts[f"role-{index}.sh"] = _role_script(request, opts, index, note, False)
    return [LsfJob(name, tuple(argv), scripts)]


def _argv(request: LsfBsub, opts: LsfOpts, name: str, output: str) -> list[str]:
    folder = request.folder
    argv = [
        "bsub",
        "-J",
        name,
        "-Jd",
        f"{MARK}{folder}",
        "-cwd",
        folder,
        "-o",
        f"{folder}/{output}",
    ]
    values = {
        "-q": opts.queue if opts.queue is not None else opts.lsf_queue,
        "-P": opts.project,
        "-W": opts.walltime,
        "-app": opts.app_profile,
        "-sla": opts.sla,
        "-U": opts.reservation,
        "-m": opts.hosts,
        "-w": opts.dependency,
        "-b": opts.begin,
    }
    for flag, value in values.items():
        if value is not None:
            argv += [flag, str(value)]
    return argv + (["-x"] if opts.exclusive else [])


def _placement(opts: LsfOpts, cpus: int, mem: int) -> list[str]:
    """Builds the placement arguments: a replica runs on one host."""
    slots = ["-n", str(cpus)] if cpus > 0 else []
    span = [] if "span[" in (opts.resource_req or "") else ["span[hosts=1]"]
    return slots + _requirements(opts, span, mem)


def _requirements(opts: LsfOpts, span: Sequence[str], mem: int) -> list[str]:
    parts = list(span)
    if mem > 0 and "mem=" not in (opts.resource_req or ""):
        parts.append(f"rusage[mem={int(mem)}]")
    found = ["-R", " ".join(parts)] if parts else []
    return found + (["-R", opts.resource_req] if opts.resource_req else [])


def _gpus(count: int, exclusive: bool) -> list[str]:
    if count <= 0:
        return []
    return ["-gpu", f"num={count}:mode=shared" + (":j_exclusive=yes" if exclusive else "")]


def _last(request: LsfBsub, opts: LsfOpts, shell: str, script: str, retries: int) -> list[str]:
    requeue = ["-Q", str(REQUEUE_CODE)] if retries > 0 else []
    more = [*notify_flags(opts.notify), *split_bsub_args(opts.bsub_args)]
    # it is read by LSF's shell, which signals would end before ours
    return [*requeue, *more, f"exec {shell} {shlex.quote(f'{request.folder}/{script}')}"]


def _role_script(request: LsfBsub, opts: LsfOpts, index: int, note: RoleNote, ends: bool) -> str:
    role = request.app.roles[index]
    launch = _launch(request, opts, index, role, note)
    return render_role(request.folder, f"{request.app_id}.*", index, note, launch, ends)


def _launch(request: LsfBsub, opts: LsfOpts, index: int, role: Role, note: RoleNote) -> Launch:
    runtime = runtime_of(role, opts, request.facts)
    in_dir = role.image in request.facts.dirs
    work_dir = role.image if in_dir else request.facts.cwd
    work_dir = posixpath.normpath(posixpath.join(request.facts.cwd, work_dir))
    values = macros.Values(
        img_root=work_dir if runtime == "none" else "",
        app_id=request.app_id,
        replica_id=REPLICA_MARK,
        rank0_env=ENV_TORCHX_RANK0_HOST,
    )
    plan = MacroPlan(role)
    words = (role.entrypoint, *plan.args(values))
    env = plan.env(values)
    if runtime == "docker":
        name = f"{request.app_id}-{note.stem}"
        words, client_env = docker_words(role, opts, words, env)
        return Launch(runtime, words, client_env, name=name)
    options = apptainer_options(role, opts, request.folder) if runtime == "apptainer" else ()
    return Launch(runtime, words, tuple(env.items()), work_dir, options, role.image)


def _least(role: Role) -> int | None:
    least = role.min_replicas
    return least if least is not None and least < role.num_replicas else None


def _delimiter(text: str, wanted: str) -> str:
    """Returns a line that does not occur in the text."""
    lines = frozenset(text.split("\n"))
    while wanted in lines:
        wanted += "_"
    return wanted
