"""Parses the journal of a job: state, attempts and exit codes of every replica."""

from collections.abc import Callable, Mapping

from torchx.schedulers.api import AppSnapshot, ReplicaSnapshot
from torchx.specs.api import AppState

from ._record import JobRecord
from ._supervise.format import TERMINAL, attempt_dir


class ReplicaView:
    """The latest attempt of one replica, as far as it is recorded."""

    __slots__ = ("attempt", "code", "ended_ns", "pid", "restarting", "started_ns", "stopped")

    def __init__(self) -> None:
        self.attempt = 0
        self.pid = 0
        self.code: int | None = None
        """Exit code, negative for a signal; ``None`` while it runs."""
        self.started_ns = 0
        self.ended_ns = 0
        self.stopped = False
        """True if it was told to end before it ended."""
        self.restarting = False
        """True if it will be restarted."""


class JobView:
    """The content of a job's journal."""

    def __init__(self) -> None:
        self.state = AppState.PENDING
        self.message = ""
        self.restarts = 0
        self.boot_id = ""
        self.ending = ""
        """State with which the job is being ended; empty if it is not."""
        self.supervisors: list[tuple[int, int]] = []
        """(pid, start ticks) of the supervisor and its guard."""
        self.replicas: dict[tuple[int, int], ReplicaView] = {}
        """Replicas by (role index, replica)."""
        self.ended_ns = 0
        self.size = 0
        """Number of bytes read."""

    @property
    def terminal(self) -> bool:
        """True if the job has ended."""
        return self.state.name in TERMINAL

    @property
    def cancelled(self) -> bool:
        """True if its end was requested."""
        return "CANCELLED" in (self.ending, self.state.name)


def parse_journal(data: bytes) -> JobView:
    """Parses a journal; ignores a truncated last event, and events of newer versions."""
    view = JobView()
    view.size = len(data)
    *lines, _truncated = data.decode("utf-8", "replace").split("\n")
    for event in _events([line for line in lines if line]):
        kind, *fields = event if isinstance(event, list) and event else [None]
        if not isinstance(kind, str) or kind not in _EVENTS:
            continue
        apply, types = _EVENTS[kind]
        if len(fields) == len(types) and all(map(isinstance, fields, types)):
            apply(view, *fields)
    return view


def _events(lines: "list[str]") -> "list[object]":
    """Decodes lines of JSON together, or one by one if some are damaged."""
    import json  # 1 ms, and `list` reads no journal of what has ended

    try:
        events: list[object] = json.loads(f"[{','.join(lines)}]")
        if len(events) == len(lines):
            return events
    except ValueError:
        pass
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def _start(view: JobView, t: int, role: int, k: int, attempt: int, pid: int, _ticks: int) -> None:
    replica = view.replicas[role, k] = ReplicaView()
    replica.attempt, replica.pid, replica.started_ns = attempt, pid, t


def _exit(view: JobView, t: int, role: int, k: int, attempt: int, code: int, stopped: int) -> None:
    replica = view.replicas.setdefault((role, k), ReplicaView())
    replica.attempt, replica.code, replica.ended_ns = attempt, code, t
    replica.stopped = bool(stopped)


def _restart(
    view: JobView, _t: int, policy: str, role: int, k: int, retry: int, pause_ms: int
) -> None:
    view.restarts += 1
    _mark_restart(view, policy, role, k)
    view.message = f"retry {retry} begins after {pause_ms / 1000:g} s" if pause_ms else ""


def _ending(view: JobView, _t: int, state: str, message: str) -> None:
    view.ending, view.message = state, message


def _state(view: JobView, t: int, name: str, message: str) -> None:
    if name in AppState.__members__ and not view.terminal:
        view.state, view.message = AppState[name], message
        view.ended_ns = t if name in TERMINAL else 0


def _supervised(
    view: JobView, _t: int, _host: str, boot: str, pid: int, ticks: int, guard: int, ticks_of: int
) -> None:
    view.boot_id = boot
    view.supervisors = [(pid, ticks), (guard, ticks_of)]


_EVENTS: "dict[str, tuple[Callable[..., None], tuple[type, ...]]]" = {
    "supervised": (_supervised, (int, str, str, int, int, int, int)),
    "start": (_start, (int, int, int, int, int, int)),
    "exit": (_exit, (int, int, int, int, int, int)),
    "restart": (_restart, (int, str, int, int, int, int)),
    "ending": (_ending, (int, str, str)),
    "state": (_state, (int, str, str)),
}
"""By kind: what an event does, and the types of its fields (see ``format``)."""


def _mark_restart(view: JobView, policy: str, role: int, k: int) -> None:
    for (role_of, index), replica in view.replicas.items():
        if policy == "REPLICA" and (role_of, index) != (role, k):
            continue
        if policy == "ROLE" and role_of != role:
            continue
        replica.restarting = True


def replica_state(replica: ReplicaView, job: JobView) -> AppState:
    """Returns the state of one replica; CANCELLED if ended with its job, whatever its code."""
    over = job.terminal or bool(job.ending)
    if replica.code is None:
        if job.terminal:
            return AppState.CANCELLED
        return AppState.RUNNING if replica.pid else AppState.PENDING
    if replica.restarting:
        return AppState.CANCELLED if over else AppState.PENDING
    if replica.stopped:
        return AppState.CANCELLED
    return AppState.SUCCEEDED if replica.code == 0 else AppState.FAILED


def failed_keys(job: JobView) -> "list[tuple[int, int]]":
    """Returns role index and replica of those that failed for good."""
    items = job.replicas.items()
    return [key for key, replica in items if replica_state(replica, job) is AppState.FAILED]


def snapshot(record: JobRecord, job: JobView, errors: Mapping[tuple[int, int], str]) -> AppSnapshot:
    """Builds the snapshot of a job.

    Args:
        errors: contents of the error files of failed replicas, by (role index, replica).
    """
    app = record.app()
    if record.damage:
        return AppSnapshot(record.app_id, native_state=AppState.UNKNOWN, message=record.damage)
    return AppSnapshot(
        app_id=record.app_id,
        replicas=tuple(
            _replica(record, job, (index, k), errors)
            for index, (_, count) in enumerate(record.roles)
            for k in range(count)
        ),
        roles=tuple(app.roles) if app else (),
        name=record.name,
        native_state=job.state,
        cancelled=job.cancelled,
        message=job.message,
        restarts=job.restarts,
        metadata=app.metadata if app else {},
        ui_url=f"file://{record.log_dir}",
        ends_on_failure=record.ends_on_failure,
        created_ns=record.created_ns or None,
        min_replicas_count=False,
    )


def _replica(
    record: JobRecord,
    job: JobView,
    key: "tuple[int, int]",
    errors: Mapping[tuple[int, int], str],
) -> ReplicaSnapshot:
    replica = job.replicas.get(key, _NEVER_STARTED)
    folder = attempt_dir(record.replica_dir(*key), replica.attempt)
    return ReplicaSnapshot(
        role=record.roles[key[0]][0],
        replica=key[1],
        state=replica_state(replica, job),
        exit_code=replica.code,
        host=record.host,
        attempt=replica.attempt,
        started_ns=replica.started_ns or None,
        ended_ns=replica.ended_ns or None,
        error=errors.get(key),
        log_path=f"{folder}/combined.log",
        native_id=str(replica.pid) if replica.pid else "",
    )


_NEVER_STARTED = ReplicaView()
