"""Converts records of jobs to snapshots. Pure.

The service derives the state of a multi-node job from its main node alone; we use all nodes.
"""

from collections.abc import Iterable, Mapping, Sequence

from torchx._startup.dataclass import light_dataclass
from torchx.schedulers._core.snapshot import AppSnapshot, ReplicaKey, ReplicaSnapshot
from torchx.specs.api import AppState, is_terminal

from ._records import (
    BATCH_ENDED,
    CANCEL_REASON,
    END_REASON,
    Node,
    Record,
    RolePlace,
    is_multinode,
    read_roles,
    state_of,
    told_reason,
)
from ._tags import TAG_ON_FAILURE, TAG_TORCHX_APPNAME

_BY_THE_SERVICE = (None, -15, -9)
"""Exit codes of containers that were ended from outside, before or after they started."""


@light_dataclass(frozen=True)
class BatchSnapshot(AppSnapshot):
    """A snapshot with the records that it was built from."""

    job: Record | None = None
    nodes: Mapping[ReplicaKey, Node] | None = None


def build_snapshot(
    app_id: str, job: Record, records: Mapping[int, Record], asked: str = ""
) -> BatchSnapshot:
    """Builds the snapshot of an app.

    Args:
        job: record of the job; of a multi-node job the parent.
        records: records of the existing nodes, by index; empty for a job of one container.
        asked: why we requested its end, which the service reports only after the end.
    """
    places = read_roles(job)
    nodes: dict[ReplicaKey, Node] = {}
    for place in places:
        for k in range(place.role.num_replicas):
            record = records.get(place.first + k) if is_multinode(job) else job
            if record is not None:
                nodes[place.role.name, k] = Node(record)
    app = _App(job, places, nodes, asked)
    replicas = tuple(
        app.replica(place.role.name, k) for place in places for k in range(place.role.num_replicas)
    )
    parent = Node(job)
    view = "mnp-job" if is_multinode(job) else "detail"
    return BatchSnapshot(
        app_id=app_id,
        replicas=replicas,
        roles=tuple(place.role for place in places),
        name=str(job.get("jobName") or ""),
        native_state=app.native_state(replicas),
        cancelled=app.cancelled and parent.state is not AppState.SUCCEEDED,
        message=app.message(replicas),
        restarts=max((node.attempt for node in (parent, *nodes.values())), default=0),
        metadata={str(key): str(value) for key, value in (job.get("tags") or {}).items()},
        ui_url=job_ui_url(str(job.get("jobArn") or ""), view),
        ends_on_failure=(job.get("tags") or {}).get(TAG_ON_FAILURE) != "wait",
        min_replicas_count=False,
        job=job,
        nodes=nodes,
    )


class _App:
    """A job and its nodes, as far as the states of replicas depend on each other."""

    def __init__(
        self,
        job: Record,
        places: Sequence[RolePlace],
        nodes: Mapping[ReplicaKey, Node],
        asked: str,
    ) -> None:
        self.job = job
        self.parent = Node(job)
        self.nodes = nodes
        self.main = (places[0].role.name, 0) if places else None
        words = str(job.get("statusReason") or asked)
        self.ended_for = ""
        """The replica whose failure made us end the job."""
        if words.startswith(END_REASON):
            self.ended_for = words.removeprefix(END_REASON).strip()
        flagged = bool(job.get("isTerminated") or job.get("isCancelled"))
        self.terminated = flagged or words.startswith((CANCEL_REASON, END_REASON))
        by_user = not words.startswith((END_REASON, *BATCH_ENDED))
        self.cancelled = self.terminated and by_user
        attempts = int((job.get("retryStrategy") or {}).get("attempts") or 1)
        self.may_retry = not self.terminated and self.parent.attempt + 1 < attempts

    @property
    def over(self) -> bool:
        """True if the service has ended the job."""
        return is_terminal(self.parent.state)

    def replica(self, role: str, k: int) -> ReplicaSnapshot:
        node = self.nodes.get((role, k))
        if node is None:
            return ReplicaSnapshot(role, k, self._untold())
        state = self._state(role, k, node)
        return ReplicaSnapshot(
            role,
            k,
            state,
            exit_code=node.exit_code,
            reason=node.reason if state is not AppState.RUNNING else "",
            host=node.host,
            attempt=node.attempt,
            started_ns=node.time_ns("startedAt"),
            ended_ns=node.time_ns("stoppedAt") if is_terminal(state) else None,
            native_id=str(node.record.get("jobId") or ""),
        )

    def _untold(self) -> AppState:
        """Returns the state of a node without a record."""
        if not self.nodes and self.parent.state in (AppState.RUNNING, AppState.SUCCEEDED):
            return self.parent.state  # none of them has a record
        return AppState.CANCELLED if self.over else AppState.PENDING

    def _state(self, role: str, k: int, node: Node) -> AppState:
        state = node.state
        if state is AppState.FAILED:
            if f"{role}/{k}" == self.ended_for:
                return AppState.FAILED
            if self.cancelled or self._was_ended(role, k, node):
                return AppState.CANCELLED
            if self.may_retry and not self.over and node.record is not self.job:
                return AppState.PENDING  # if the main node fails as well, all are restarted
            return AppState.FAILED
        if self.over and not is_terminal(state):
            return AppState.CANCELLED
        return state

    def _was_ended(self, role: str, k: int, node: Node) -> bool:
        """Returns True if the node ended because the job, or the main node, had ended."""
        if node.exit_code not in _BY_THE_SERVICE or node.container_reason:
            return False
        if self.terminated:
            return True
        main = self.nodes.get(self.main) if self.main else None
        if main is None or (role, k) == self.main or not is_terminal(main.state):
            return False
        ended, main_ended = node.time_ns("stoppedAt"), main.time_ns("stoppedAt")
        return ended is None or (main_ended is not None and ended >= main_ended)

    def native_state(self, replicas: Iterable[ReplicaSnapshot]) -> AppState | None:
        """Returns the state of the app if it does not follow from its replicas."""
        state = self.parent.state
        states = {replica.state for replica in replicas}
        if state is AppState.UNKNOWN:
            return AppState.UNKNOWN
        if self.over:
            if AppState.FAILED in states or (self.cancelled and state is AppState.FAILED):
                return None
            return state
        return AppState.RUNNING if states and all(map(is_terminal, states)) else None

    def message(self, replicas: Iterable[ReplicaSnapshot]) -> str:
        """Returns the service's reason for the job, unless a replica has the same."""
        words = told_reason(self.job)
        failed = any(replica.state is AppState.FAILED for replica in replicas)
        if self.cancelled or self.parent.state is AppState.RUNNING:
            return ""
        return "" if failed and words in {node.reason for node in self.nodes.values()} else words


# -- rows and pages ------------------------------------------------------------------------------


def build_row(queue: str, job: Record) -> AppSnapshot:
    """Builds the row of a list from the record of the job alone."""
    words = str(job.get("statusReason") or "")
    flagged = bool(job.get("isTerminated") or job.get("isCancelled"))
    state = state_of(job.get("status"))
    cancelled = flagged or words.startswith(CANCEL_REASON)
    if state is AppState.FAILED and cancelled and not words.startswith((END_REASON, *BATCH_ENDED)):
        state = AppState.CANCELLED
    name = str(job.get("jobName") or "")
    app = str((job.get("tags") or {}).get(TAG_TORCHX_APPNAME) or name)
    return AppSnapshot(f"{queue}:{name}", native_state=state, name=app)


_CONSOLES = {
    "aws": "https://{region}.console.aws.amazon.com",
    "aws-us-gov": "https://console.amazonaws-us-gov.com",
    "aws-cn": "https://console.amazonaws.cn",
}


def job_ui_url(arn: str, view: str = "mnp-job") -> str | None:
    """Returns the page of a job in AWS's console; ``None`` for another ARN.

    >>> job_ui_url("arn:aws:batch:us-west-2:1:job/x-1")
    'https://us-west-2.console.aws.amazon.com/batch/home?region=us-west-2#jobs/mnp-job/x-1'
    """
    parts = arn.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "batch":
        return None
    kind, _, job_id = parts[5].partition("/")
    if kind != "job" or not job_id:
        return None
    console = _CONSOLES.get(parts[1], _CONSOLES["aws"]).format(region=parts[3])
    return f"{console}/batch/home?region={parts[3]}#jobs/{view}/{job_id}"
