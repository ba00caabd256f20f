"""What the journal of a job says: state, attempts and exit codes of every replica."""

import json

from torchx.schedulers.api import DescribeAppResponse
from torchx.specs.api import NONE, AppState, ReplicaStatus, RoleStatus

from ._supervise.journal import TERMINAL
from ._supervise.tree import describe_exit


class ReplicaView:
    """The latest attempt of one replica, as far as it is recorded."""

    __slots__ = ("attempt", "code", "ended_ns", "pid", "started_ns", "ticks")

    def __init__(self) -> None:
        self.attempt = 0
        self.pid = 0
        self.ticks = 0
        self.code: int | None = None
        """Exit code, negative for a signal; ``None`` while it runs."""
        self.started_ns = 0
        self.ended_ns = 0

    @property
    def state(self) -> AppState:
        """State of the attempt on its own, not knowing how the job ended."""
        if self.code is None:
            return AppState.RUNNING if self.pid else AppState.PENDING
        return AppState.SUCCEEDED if self.code == 0 else AppState.FAILED


class JobView:
    """All that the journal of a job says."""

    def __init__(self) -> None:
        self.state = AppState.PENDING
        self.message = ""
        self.restarts = 0
        self.host = ""
        self.boot_id = ""
        self.supervisors: list[tuple[int, int]] = []
        """(pid, start ticks) of the supervisor and its guard."""
        self.replicas: dict[tuple[int, int], ReplicaView] = {}
        """By (role index, replica)."""
        self.ended_ns = 0

    @property
    def terminal(self) -> bool:
        return self.state.name in TERMINAL


def parse_journal(data: bytes) -> JobView:
    """Folds the events of a journal; what a kill cut off and what is newer than us is ignored."""
    view = JobView()
    whole = data[: data.rfind(b"\n") + 1]
    for line in whole.split(b"\n"):
        if not line:
            continue
        try:
            kind, *fields = json.loads(line)
            _apply(view, kind, fields)
        except (ValueError, TypeError, KeyError):
            continue
    return view


def _apply(view: JobView, kind: str, fields: "list[object]") -> None:
    match kind, fields:
        case "start", [int(t), int(role), int(k), int(attempt), int(pid), int(ticks)]:
            replica = view.replicas.setdefault((role, k), ReplicaView())
            replica.attempt, replica.pid, replica.ticks = attempt, pid, ticks
            replica.started_ns, replica.code, replica.ended_ns = t, None, 0
        case "exit", [int(t), int(role), int(k), int(attempt), int(code)]:
            replica = view.replicas.setdefault((role, k), ReplicaView())
            replica.attempt, replica.code, replica.ended_ns = attempt, code, t
        case "state", [int(t), str(name), str(message)]:
            if not view.terminal:
                view.state, view.message = AppState[name], message
                view.ended_ns = t if name in TERMINAL else 0
        case "restart", [int(), str(), int(), int(), int()]:
            view.restarts += 1
        case "supervised", [int(), str(host), str(boot), int(pid), int(t1), int(guard), int(t2)]:
            view.host, view.boot_id = host, boot
            view.supervisors = [(pid, t1), (guard, t2)]


def replica_state(replica: ReplicaView, job: JobView) -> AppState:
    """A replica that was ended with its job is CANCELLED, whatever signal ended it."""
    stopped = job.terminal and job.state is not AppState.SUCCEEDED
    if stopped and (replica.code is None or replica.code < 0):
        ended_by_us = replica.code in (None, -15, -9) and (
            job.state is AppState.CANCELLED or replica.code is None
        )
        if ended_by_us:
            return AppState.CANCELLED
    return replica.state


def exit_message(replica: ReplicaView) -> str:
    """The failure of a replica that left no error file, in the shape of one."""
    return json.dumps(
        {
            "message": describe_exit(replica.code or 0),
            "errorCode": replica.code,
            "timestamp": replica.ended_ns // 1_000_000_000,
        }
    )


def role_statuses(
    job: JobView, roles: "list[tuple[str, int]]", errors: "dict[tuple[int, int], str]", host: str
) -> "list[RoleStatus]":
    """Statuses of the latest attempts.

    Args:
        roles: name and number of replicas, in the order of the app.
        errors: what the error files of failed replicas hold, by (role index, replica).
        host: name of the machine the job runs on.
    """
    statuses = []
    for index, (name, count) in enumerate(roles):
        replicas = []
        for k in range(count):
            replica = job.replicas.get((index, k), _NEVER_STARTED)
            state = replica_state(replica, job)
            error = errors.get((index, k))
            if error is None:
                error = exit_message(replica) if state is AppState.FAILED else NONE
            replicas.append(
                ReplicaStatus(
                    id=k, state=state, role=name, hostname=host, structured_error_msg=error
                )
            )
        statuses.append(RoleStatus(role=name, replicas=replicas))
    return statuses


_NEVER_STARTED = ReplicaView()


def response(
    app_id: str, job: JobView, statuses: "list[RoleStatus]", error: str, log_dir: str
) -> DescribeAppResponse:
    """The answer of ``describe`` but for the app's definition."""
    return DescribeAppResponse(
        app_id=app_id,
        state=job.state,
        num_restarts=job.restarts,
        msg=job.message or NONE,
        structured_error_msg=error,
        ui_url=f"file://{log_dir}",
        roles_statuses=statuses,
    )
