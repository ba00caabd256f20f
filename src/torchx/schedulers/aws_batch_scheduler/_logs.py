"""The log streams of an app: one for each attempt of each replica."""

from collections.abc import Callable, Iterator, Sequence

from torchx._aws.session import AwsService
from torchx.schedulers._aws.cloudwatch import LogPlace, LogPlan, LogStream, read_logs
from torchx.schedulers._core.log_query import LogChunk, LogKey, LogQuery
from torchx.schedulers._core.snapshot import ReplicaKey
from torchx.specs.api import AppState, is_terminal

from ._records import DEFAULT_LOG_GROUP, Record, is_multinode, read_roles
from ._states import BatchSnapshot

Look = Callable[[Sequence[int] | None], tuple[BatchSnapshot | None, int]]
"""Queries some nodes, all for ``None``; also returns the number of calls."""


def read(
    logs: AwsService,
    snapshot: BatchSnapshot,
    replicas: Sequence[ReplicaKey],
    query: LogQuery,
    look: Look,
) -> Iterator[LogChunk]:
    """Yields lines of these replicas by time.

    Args:
        snapshot: a recent snapshot of the app.
        look: called repeatedly while the lines are followed.
    """
    job = snapshot.job or {}
    firsts = {place.role.name: place.first for place in read_roles(job)}
    nodes = sorted(firsts[role] + k for role, k in replicas)
    some = nodes if len(nodes) < len(snapshot.replicas) else None
    seen: list[BatchSnapshot | None] = [snapshot]

    def plan() -> LogPlan:
        found, calls = (seen.pop(), 0) if seen else look(some)
        return LogPlan([], ended=True) if found is None else plan_of(found, replicas, calls)

    return read_logs(logs, place_of(job), plan, replicas, query)


def place_of(job: Record) -> LogPlace:
    """Returns the log group of a job, and the prefix of its streams."""
    definition = str(job.get("jobDefinition") or "").rpartition("/")[2].partition(":")[0]
    properties = (job.get("nodeProperties") or {}).get("nodeRangeProperties") or []
    container = properties[0].get("container") if is_multinode(job) else job.get("container")
    options = ((container or {}).get("logConfiguration") or {}).get("options") or {}
    group = str(options.get("awslogs-group") or DEFAULT_LOG_GROUP)
    return LogPlace(group, f"{definition}/" if definition else "")


def plan_of(snapshot: BatchSnapshot, replicas: Sequence[ReplicaKey], calls: int) -> LogPlan:
    """Returns the existing streams of these replicas."""
    nodes = snapshot.nodes or {}
    streams = [
        LogStream(LogKey(role, k, attempt), name)
        for role, k in replicas
        if (role, k) in nodes
        for attempt, name in nodes[role, k].streams
    ]
    named = {stream.key for stream in streams}
    asked = {*replicas}
    wanted = [replica for replica in snapshot.replicas if replica.key in asked]
    complete = all(
        LogKey(replica.role, replica.replica, replica.attempt) in named
        for replica in wanted
        if replica.state in (AppState.RUNNING, AppState.PENDING)
    )
    ended = snapshot.terminal or all(is_terminal(replica.state) for replica in wanted)
    ends = [replica.ended_ns for replica in wanted if replica.ended_ns is not None]
    ended_ms = max(ends) // 1_000_000 if ended and len(ends) == len(wanted) and ends else None
    return LogPlan(streams, ended, ended_ms, complete, calls)
