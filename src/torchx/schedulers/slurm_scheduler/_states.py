"""Maps Slurm's states, and converts the records and notes of a job to a snapshot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torchx._startup.dataclass import field, light_dataclass
from torchx.schedulers._core.exits import from_shell
from torchx.schedulers._core.snapshot import (
    AppSnapshot,
    ReplicaSnapshot,
    describe_failure,
)
from torchx.specs.api import AppState, Resource, Role, is_terminal

from ._job import JobDir, JobNotes, JobRecord, Key, RoleNote, log_path, safe_name

SLURM_STATES: Mapping[str, AppState] = {
    "BOOT_FAIL": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
    "COMPLETED": AppState.SUCCEEDED,
    "DEADLINE": AppState.FAILED,
    "FAILED": AppState.FAILED,
    "NODE_FAIL": AppState.FAILED,
    "OUT_OF_MEMORY": AppState.FAILED,
    "PENDING": AppState.PENDING,
    "PREEMPTED": AppState.FAILED,
    "RUNNING": AppState.RUNNING,
    "REQUEUED": AppState.PENDING,
    "RESIZING": AppState.PENDING,
    "REVOKED": AppState.FAILED,
    "SUSPENDED": AppState.PENDING,
    "TIMEOUT": AppState.FAILED,
    # flags, which some versions report in place of the state
    "COMPLETING": AppState.RUNNING,
    "CONFIGURING": AppState.PENDING,
    "EXPEDITING": AppState.PENDING,
    "LAUNCH_FAILED": AppState.PENDING,
    "POWER_UP_NODE": AppState.PENDING,
    "RECONFIG_FAIL": AppState.FAILED,
    "REQUEUE_FED": AppState.PENDING,
    "REQUEUE_HOLD": AppState.PENDING,
    "RESV_DEL_HOLD": AppState.PENDING,
    "SIGNALING": AppState.RUNNING,
    "SPECIAL_EXIT": AppState.PENDING,
    "STAGE_OUT": AppState.RUNNING,
    "STOPPED": AppState.PENDING,
    "UPDATE_DB": AppState.RUNNING,
}
"""Slurm's states; NeMo-Run searches for the first key that a state starts with."""


def appstate_from_slurm_state(slurm_state: str) -> AppState:
    """Returns TorchX's state; ``UNKNOWN`` for one that this version does not know.

    >>> appstate_from_slurm_state("CANCELLED by 1000"), appstate_from_slurm_state("COMPLETED+")
    (CANCELLED (6), SUCCEEDED (4))
    """
    words = slurm_state.split()
    return SLURM_STATES.get(words[0].rstrip("+"), AppState.UNKNOWN) if words else AppState.UNKNOWN


def get_appstate_from_job(job: Mapping[str, Any]) -> AppState:
    """Returns the state of a job of ``squeue --json``, a string up to 23.02 and a list later."""
    return appstate_from_slurm_state(native_state(job))


def native_state(job: Mapping[str, Any]) -> str:
    """Returns the state itself, without flags."""
    state = job.get("job_state")
    if isinstance(state, list):
        state = state[0] if state else ""
    return str(state or "")


class Component(NamedTuple):
    """A component of a heterogeneous job, or a job of one component."""

    name: str
    """Name of the component: ``<role>-<digits>``."""
    state: AppState
    native: str = ""
    """The state as Slurm reports it."""
    reason: str = ""
    hosts: tuple[str, ...] = ()
    resource: Resource | None = None
    """Its allocation on a node; ``None`` if that is not reported."""
    user: str = ""

    @property
    def known_reason(self) -> str:
        """Slurm's reason why it waits or how it ended; empty if there is none."""
        return "" if self.reason in ("None", "") else self.reason

    @property
    def role(self) -> str | None:
        """Name of the role; ``None`` if it is not a component of TorchX."""
        role, _, digits = self.name.rpartition("-")
        return role if role and digits.isascii() and digits.isdecimal() else None


class NativeJob(NamedTuple):
    """The record of a job by squeue or sacct."""

    app_id: str
    components: tuple[Component, ...]
    work_dir: str = ""
    command: str = ""
    restarts: int = -1
    """-1 if it is not reported."""
    submitted_s: int = 0
    """In seconds since the epoch; 0 if it is not reported."""

    @property
    def submitted_ns(self) -> int | None:
        """In nanoseconds since the epoch; ``None`` if it is not reported."""
        return self.submitted_s * 1_000_000_000 or None

    @property
    def ours(self) -> "tuple[Component, ...]":
        """The components that belong to roles."""
        return tuple(c for c in self.components if c.role is not None)

    @property
    def state(self) -> AppState:
        """The state of the job, from those of its components."""
        return job_state(c.state for c in self.components)


def job_state(states: Iterable[AppState]) -> AppState:
    """Derives the state of a job from those of its components, as Slurm reports them.

    >>> job_state([AppState.SUCCEEDED, AppState.FAILED, AppState.RUNNING])
    RUNNING (3)
    """
    found = set(states)
    live = {state for state in found if not is_terminal(state)}
    if AppState.RUNNING in live:
        return AppState.RUNNING
    if AppState.UNKNOWN in live or not found:
        return AppState.UNKNOWN
    if live:
        return min(live) if live == found else AppState.RUNNING
    order = (AppState.FAILED, AppState.CANCELLED, AppState.SUCCEEDED)
    return next(state for state in order if state in found)


# -- the snapshot -------------------------------------------------------------------------------


class JobView(NamedTuple):
    """The native record of a job, and its own notes."""

    app_id: str
    native: NativeJob | None
    notes: JobNotes | None = None
    job_dir: JobDir | None = None
    record: JobRecord | None = None
    words: str = ""
    """Slurm's messages from the output of a job that failed before a replica did."""

    @property
    def state(self) -> AppState:
        """The job's state as Slurm reports it; from its own notes if Slurm has forgotten it."""
        if self.native is not None:
            return self.native.state
        if self.notes is not None and self.notes.end is not None:
            return AppState.FAILED if self.notes.end else AppState.SUCCEEDED
        return AppState.UNKNOWN

    @property
    def restarts(self) -> bool:
        """True if a failure of this attempt is retried."""
        notes, record = self.notes, self.record
        if notes is None or record is None or notes.killed or notes.end is not None:
            return False
        return notes.attempt < record.max_retries and not is_terminal(self.state)


@light_dataclass(frozen=True)
class SlurmSnapshot(AppSnapshot):
    """The snapshot of a job, with the location of its files."""

    job_dir: JobDir | None = None
    groups: Mapping[str, int] = field(default_factory=dict)
    """Index of each role's component, by role name; empty if there is only one."""


def snapshot(view: JobView) -> SlurmSnapshot:
    """Builds the snapshot of a job."""
    roles = _roles(view)
    replicas = [replica for i, role in enumerate(roles) for replica in _replicas(view, i, role)]
    restarts = view.native.restarts if view.native is not None else -1
    if view.notes is not None:
        restarts = max(restarts, view.notes.attempt)
    return SlurmSnapshot(
        app_id=view.app_id,
        replicas=tuple(replicas),
        roles=tuple(roles),
        name=view.record.app if view.record is not None else "",
        native_state=view.state,
        cancelled=view.state is AppState.CANCELLED,
        message=_message(view, replicas),
        restarts=restarts,
        ends_on_failure=view.record is not None and view.record.end_on_failure,
        created_ns=view.native.submitted_ns if view.native is not None else None,
        job_dir=view.job_dir,
        groups=_groups(view, roles),
    )


def _roles(view: JobView) -> list[Role]:
    native = view.native
    ours = native.ours if native is not None else ()
    resources = {component.role: component.resource for component in ours}
    if view.record is not None:
        roles = [_noted_role(view, i, note) for i, note in enumerate(view.record.roles)]
    else:
        counts: dict[str, int] = {}
        for component in ours:
            name = component.role or ""
            counts[name] = counts.get(name, 0) + max(len(component.hosts), 1)
        image, entrypoint = (native.work_dir, native.command) if native is not None else ("", "")
        roles = [
            Role(name, image, num_replicas=count, entrypoint=entrypoint)
            for name, count in counts.items()
        ]
    for role in roles:
        role.resource = resources.get(safe_name(role.name)) or role.resource
    return roles


def _groups(view: JobView, roles: Sequence[Role]) -> dict[str, int]:
    components = view.native.components if view.native is not None else ()
    if len(components) < 2:
        return {}
    at = {component.role: i for i, component in enumerate(components)}
    return {role.name: at[safe] for role in roles if (safe := safe_name(role.name)) in at}


def _noted_role(view: JobView, index: int, note: RoleNote) -> Role:
    hosts = view.notes.hosts.get(index) if view.notes is not None else None
    count = len(hosts) if note.elastic and hosts else note.replicas
    return Role(
        note.name,
        note.image,
        num_replicas=count,
        entrypoint=note.entrypoint,
        min_replicas=note.min_replicas if note.elastic else None,
    )


def _replicas(view: JobView, index: int, role: Role) -> Iterator[ReplicaSnapshot]:
    notes = view.notes or JobNotes()
    components = view.native.ours if view.native is not None else ()
    safe = safe_name(role.name)
    own = [c for c in components if c.role == safe for _ in range(max(len(c.hosts), 1))]
    hosts = notes.hosts.get(index) or [
        host for c in components if c.role == safe for host in c.hosts or ("",)
    ]
    for k in range(role.num_replicas):
        component = own[k] if k < len(own) else (own[0] if own else None)
        state, code, reason = _outcome(view, (index, k), component)
        yield ReplicaSnapshot(
            role=role.name,
            replica=k,
            state=state,
            exit_code=code,
            reason=reason,
            host=notes.host_of.get((index, k)) or _host(k, role.num_replicas, hosts),
            attempt=notes.attempt,
            ended_ns=notes.ended_ns.get((index, k)),
            error=notes.errors.get((index, k)),
            log_path=_log_path(view, role.name, k, notes.attempt),
        )


def _outcome(
    view: JobView, key: Key, component: "Component | None"
) -> tuple[AppState, int | None, str]:
    """Returns state, exit code and reason of a replica."""
    notes = view.notes or JobNotes()
    code = notes.codes.get(key)
    if code is None:
        return _outcome_by_job(view, key[0], component)
    if code == 0:
        return AppState.SUCCEEDED, 0, ""
    reason = _memory(component) if from_shell(code) == -9 else ""
    if view.restarts:
        state = AppState.PENDING  # the whole job is retried
    elif notes.was_ended(key):
        state = AppState.CANCELLED
    else:
        state = AppState.FAILED
    return state, from_shell(code), reason


def _outcome_by_job(
    view: JobView, index: int, component: "Component | None"
) -> tuple[AppState, int | None, str]:
    """Returns the outcome of a replica without notes, from its component and step."""
    state, native, reason = view.state, "", ""
    if component is not None:
        state, native, reason = component.state, component.native, component.known_reason
    if not is_terminal(view.state):
        words = {AppState.PENDING: reason, AppState.FAILED: native}
        return state, None, words.get(state, "")
    if view.state is AppState.CANCELLED:
        return AppState.CANCELLED, None, ""
    if view.state is AppState.SUCCEEDED or view.notes is None:
        ended = state if is_terminal(state) else view.state
        return ended, None, native
    step = view.notes.failed_alone(index)
    if step is not None:
        return AppState.FAILED, from_shell(step), view.words or _memory(component)
    return AppState.CANCELLED, None, ""


def _memory(component: "Component | None") -> str:
    native = component.native if component is not None else ""
    return "out of memory" if native.startswith("OUT_OF_ME") else ""


def _host(k: int, replicas: int, hosts: Sequence[str]) -> str:
    """Returns the host of a replica; empty if several share hosts and it is unknown.

    >>> _host(3, 4, ["n1"]), _host(1, 2, ["n1", "n2"]), _host(1, 4, ["n1", "n2"])
    ('n1', 'n2', '')
    """
    if len(hosts) == 1:
        return hosts[0]
    return hosts[k] if replicas <= len(hosts) else ""


def _log_path(view: JobView, role: str, k: int, attempt: int) -> str | None:
    if view.job_dir is None:
        return None
    return log_path(view.job_dir.work_dir, view.app_id, role, k, attempt, "err")


# -- words --------------------------------------------------------------------------------------

_REASONS = {
    "AssocMaxJobsLimit": "your account may run no more jobs at once",
    "BadConstraints": "no nodes meet what is asked for",
    "DependencyNeverSatisfied": "a job that it depends on has failed, it can never start",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held, `scontrol release {id}` lets it start",
    "PartitionConfig": "the partition cannot run it: it asks for more nodes or time than allowed",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition starts no jobs now",
    "PartitionNodeLimit": "the partition has or allows fewer nodes than it asks for",
    "PartitionTimeLimit": "the partition allows less time than it asks for",
    "QOSMaxJobsPerUserLimit": "the QOS lets you run no more jobs at once",
    "ReqNodeNotAvail": "nodes that it needs are down or reserved",
}
"""Reasons for which a job may wait longer than for its turn."""


def _message(view: JobView, replicas: Sequence[ReplicaSnapshot]) -> str:
    """Returns Slurm's reasons for the states of components, and whether a failure is retried."""
    found = []
    failures = [r for r in replicas if r.state is AppState.PENDING and r.exit_code]
    failed = min(failures, key=lambda replica: replica.ended_ns or 0, default=None)
    if failed is not None and view.notes is not None and view.record is not None:
        restart = f"restart {view.notes.attempt + 1} of {view.record.max_retries}"
        found.append(f"{describe_failure(failed)}, the job starts again ({restart})")
    for component in view.native.components if view.native is not None else ():
        text = component.native
        if component.known_reason:
            waits = component.state is AppState.PENDING
            why = _REASONS.get(component.known_reason, "").format(id=view.app_id) if waits else ""
            text += f" ({component.known_reason}{': ' if why else ''}{why})"
        found.append(text)
    found.append(view.words)
    # a replica's reason is reported with it
    reported = {replica.reason for replica in replicas if replica.state is AppState.FAILED}
    if reported:
        reported.add("RUNNING")
    return "; ".join(text for text in dict.fromkeys(found) if text and text not in reported)
