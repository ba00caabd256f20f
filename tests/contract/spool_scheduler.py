"""A complete scheduler of a small batch system, as a package of its own would bring it.

``spool-submit``, ``spool-release``, ``spool-show``, ``spool-end`` and ``spool-remove`` are its
programs.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torchx.errors import (
    BackendUnavailable,
    CommandFailed,
    JobStartError,
    UnexpectedReply,
)
from torchx.schedulers.api import (
    AppDef,
    AppDryRunInfo,
    AppSnapshot,
    AppState,
    CfgVal,
    LogChunk,
    LogQuery,
    ReplicaKey,
    ReplicaSnapshot,
    Role,
    Scheduler,
    SchedulerFeatures,
    StructuredOpts,
    ends_on_failure,
    runopts,
    with_retries,
)
from torchx.schedulers.file_logs import follow, read_now
from torchx.schedulers.ids import make_unique
from torchx.schedulers.programs import BackendPrograms
from torchx.specs.api import RetryPolicy, macros

# -- options -------------------------------------------------------------------------------------


@dataclass
class SpoolOpts(StructuredOpts):
    """The text below a field is its help."""

    priority: int = 0
    """Jobs of a higher priority start first."""

    grace_s: float = 3.0
    """Seconds between SIGTERM and SIGKILL when a job is ended."""

    on_failure: str = "end"
    """``end``: a replica that fails for good ends the others; ``wait``: they go on."""


# -- request: pure, a value that can be printed and compared -------------------------------------


@dataclass
class Task:
    """One replica."""

    name: str
    argv: list[str]
    env: dict[str, str]
    cpus: float
    mem_mb: int


@dataclass
class SpoolJob:
    """What is submitted, in the words of the batch system."""

    name: str
    comment: str
    priority: int
    grace_s: float
    end_on_failure: bool
    retries: int
    tasks: list[Task] = field(default_factory=list)


def build_request(app: AppDef, app_id: str, opts: SpoolOpts) -> SpoolJob:
    """The job of an app."""
    job = SpoolJob(
        name=app_id,
        comment=describe_roles(app),
        priority=opts.priority,
        grace_s=opts.grace_s,
        end_on_failure=ends_on_failure(opts.on_failure),
        retries=max(role.max_retries for role in app.roles),
    )
    for index, role in enumerate(app.roles):
        for k in range(role.num_replicas):
            job.tasks.append(build_task(role, index, k, app_id))
    return job


def build_task(role: Role, index: int, k: int, app_id: str) -> Task:
    """The task of one replica."""
    values = macros.Values(
        img_root=role.image, app_id=app_id, replica_id=str(k), rank0_env="SPOOL_FIRST_HOST"
    )
    own = values.apply(role)
    return Task(
        name=f"{index}-{k}",  # by numbers: names of roles may be alike or too long
        argv=[own.entrypoint, *own.args],
        env={"SPOOL_FIRST_HOST": "localhost", **own.env},
        cpus=max(role.resource.cpu, 0),
        mem_mb=max(role.resource.memMB, 0),
    )


def describe_roles(app: AppDef) -> str:
    """What the batch system keeps for us, so that any process finds the roles again."""
    roles = [[role.name, role.num_replicas, role.image] for role in app.roles]
    return json.dumps({"app": app.name, "roles": roles})


def render_request(job: SpoolJob) -> str:
    """The dry run's text."""
    return json.dumps(asdict(job), indent=2, ensure_ascii=False)


# -- states: pure, from native records to a snapshot ---------------------------------------------

STATES: Mapping[str, AppState] = {
    "WAITING": AppState.PENDING,
    "RUNNING": AppState.RUNNING,
}


def task_state(task: Mapping[str, Any], job: Mapping[str, Any]) -> AppState:
    """State of a replica; one that this version does not know is ``UNKNOWN``."""
    if task.get("state") != "ENDED":
        waits = job["over"] and task.get("state") == "WAITING"
        return AppState.CANCELLED if waits else STATES.get(str(task.get("state")), AppState.UNKNOWN)
    if task.get("code") == 0:
        return AppState.SUCCEEDED
    if job["cancelled"] or task.get("told"):
        return AppState.CANCELLED
    # until the job is over, a failed attempt may be followed by another one
    retried = not job["over"] and job["attempt"] < job["retries"]
    return AppState.PENDING if retried else AppState.FAILED


def parse_job(record: Mapping[str, Any]) -> AppSnapshot:
    """The snapshot of one native record."""
    try:
        told = json.loads(record["comment"])
        roles = [Role(name, image, num_replicas=count) for name, count, image in told["roles"]]
        replicas = [
            parse_task(task, record, roles[int(task["name"].partition("-")[0])].name)
            for task in record["tasks"]
        ]
        return AppSnapshot(
            app_id=record["name"],
            name=told["app"],
            roles=tuple(roles),
            replicas=tuple(replicas),
            native_state=None if record["over"] else live_state(replicas),
            cancelled=record["cancelled"],
            restarts=record["attempt"],
            metadata={"folder": record["folder"]},
            ends_on_failure=record["end_on_failure"],
        )
    except (KeyError, ValueError, TypeError, IndexError):
        raise UnexpectedReply("spool-show", json.dumps(record)) from None


def live_state(replicas: Sequence[ReplicaSnapshot]) -> AppState:
    """State of a job that is not over: also when all its tasks have ended, but another attempt
    may follow."""
    started = any(replica.started_ns is not None for replica in replicas)
    return AppState.RUNNING if started else AppState.PENDING


def parse_task(task: Mapping[str, Any], job: Mapping[str, Any], role: str) -> ReplicaSnapshot:
    """The snapshot of one replica."""
    return ReplicaSnapshot(
        role=role,
        replica=int(task["name"].partition("-")[2]),
        state=task_state(task, job),
        exit_code=task.get("code"),
        host="localhost",
        attempt=task["attempt"],
        started_ns=task.get("started"),
        ended_ns=task.get("ended"),
        native_id=task["name"],
    )


# -- client: all that leaves the process ---------------------------------------------------------


PROGRAMS = BackendPrograms(
    backend="spool",
    where="the programs of spool must be on PATH, run this on a machine that has them",
    transient=lambda stderr: "spool daemon is away" in stderr,
)


def submit(job: SpoolJob) -> None:
    """Submits a job and starts it; leaves nothing of it behind if that fails.

    The name was chosen before: where the answer was lost, it tells whether the job is there.
    """
    try:
        PROGRAMS.run(["spool-submit"], input=json.dumps(asdict(job)).encode())
        PROGRAMS.run(["spool-release", job.name])
    except (CommandFailed, BackendUnavailable) as err:
        with_retries(lambda: take_back(job.name))
        if isinstance(err, BackendUnavailable):
            raise
        raise JobStartError(f"the job was not submitted: {err}") from None


def take_back(name: str) -> None:
    """Removes a job that was not started."""
    if show(name):
        end(name)
        remove(name)


def show(name: str | None = None) -> list[dict[str, Any]]:
    """The native record of one job, or of all."""
    done = PROGRAMS.ask(["spool-show", *([name] if name else [])], pauses_s=())
    try:
        records: list[dict[str, Any]] = json.loads(done)
    except ValueError:
        raise UnexpectedReply("spool-show", done) from None
    return records


def end(name: str) -> None:
    """Ends a job."""
    PROGRAMS.run(["spool-end", name])


def remove(name: str) -> None:
    """Removes the record of a job that is over."""
    PROGRAMS.run(["spool-remove", name])


# -- logs ----------------------------------------------------------------------------------------


class SpoolEnd:
    """Learns from the batch system how far a job is, at most twice a second."""

    def __init__(self, snapshot: AppSnapshot, look: Callable[[str], AppSnapshot | None]) -> None:
        self._look = look
        self._asked = time.monotonic()
        self._snapshot: AppSnapshot = snapshot
        self._over = snapshot.terminal

    def look(self, quiet_s: float) -> bool:
        """Asks again if it is time; says whether there may be news."""
        if self._over or time.monotonic() - self._asked < 0.5:
            return False
        found = self._look(self._snapshot.app_id)
        self._asked = time.monotonic()
        self._over = found is None or found.terminal
        self._snapshot = found or self._snapshot
        return True

    def latest(self, replica: ReplicaKey) -> int:
        """The latest attempt that has begun."""
        found = self._snapshot.find(replica)
        return found.attempt if found is not None else 0

    def ended(self, replica: ReplicaKey) -> bool:
        """Whether nothing more is written."""
        return self._over


# -- the scheduler: wiring, nothing is decided here ----------------------------------------------


class SpoolScheduler(Scheduler[SpoolOpts]):
    """Runs apps as jobs of the batch system."""

    features = SchedulerFeatures(
        delete_forgets=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.APPLICATION}),
        attempts=True,
        ends_on_failure=True,
    )

    def __init__(self, session_name: str) -> None:
        super().__init__("spool", session_name)

    def _run_opts(self) -> runopts:
        return SpoolOpts.as_runopts()

    def _submit_dryrun(self, app: AppDef, cfg: SpoolOpts) -> AppDryRunInfo[SpoolJob]:
        return AppDryRunInfo(build_request(app, make_unique(app.name), cfg), render_request)

    def schedule(self, dryrun_info: AppDryRunInfo[SpoolJob]) -> str:
        submit(dryrun_info.request)
        return dryrun_info.request.name

    def look(self, app_id: str) -> AppSnapshot | None:
        records = show(app_id)
        return parse_job(records[0]) if records else None

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> list[AppSnapshot]:
        return [parse_job(record) for record in show()]

    def end(self, snapshot: AppSnapshot) -> None:
        end(snapshot.app_id)

    def remove(self, snapshot: AppSnapshot) -> None:
        if not snapshot.terminal:
            end(snapshot.app_id)
            while (found := self.look(snapshot.app_id)) is not None and not found.terminal:
                time.sleep(0.1)
        remove(snapshot.app_id)

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        replica_of = {replica.key: replica for replica in snapshot.replicas}

        def paths(key: ReplicaKey, attempt: int) -> list[str]:
            name = f"{replica_of[key].native_id}.{attempt}.out"
            return [os.path.join(snapshot.metadata["folder"], name)]

        if query.follow:
            yield from follow(replicas, paths, SpoolEnd(snapshot, self.look), query.attempt)
            return
        only = None if query.attempt is None else [query.attempt]
        yield from read_now(
            replicas, paths, lambda key: only or range(replica_of[key].attempt + 1), query.tail
        )


def create_scheduler(session_name: str, **kwargs: object) -> SpoolScheduler:
    """Makes the scheduler; all factories get the same keywords and ignore what they do not know."""
    return SpoolScheduler(session_name)
