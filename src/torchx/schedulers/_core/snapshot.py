"""What one look at a backend tells of an app, and all that is derived from it."""

import functools
from collections.abc import Iterable, Mapping, Sequence

from torchx._startup.dataclass import field, light_dataclass, replace
from torchx._words import did_you_mean
from torchx.errors import LogsNotFound
from torchx.specs.api import NONE, AppState, ReplicaStatus, Role, RoleStatus, is_terminal

from .exits import describe_exit, failure_json, is_consequence
from .responses import DescribeAppResponse, ListAppResponse

ReplicaKey = tuple[str, int]
"""Name of a role and index of a replica in it."""


@light_dataclass(frozen=True)
class ReplicaSnapshot:
    """The latest attempt of one replica.

    ``FAILED`` means for good: a replica that is to be retried is ``PENDING``. One that was ended
    because the app ended, by whatever signal, is ``CANCELLED``.
    """

    role: str
    replica: int
    state: AppState
    exit_code: int | None = None
    """As ``wait(2)`` says it, signals negative; ``None`` while it runs or if it is not told."""
    reason: str = ""
    """The backend's own words for why it waits or how it ended, such as ``out of memory``."""
    host: str = ""
    attempt: int = 0
    """0 for the first one."""
    started_ns: int | None = None
    """Nanoseconds since the epoch, as in ``ended_ns``; ``None`` if it is not known."""
    ended_ns: int | None = None
    error: str | None = None
    """JSON of the replica's error file, or of the exception that it printed."""
    log_path: str | None = None
    native_id: str = ""
    """The backend's name for it: a container, a pod, a step."""

    @property
    def key(self) -> ReplicaKey:
        """Its role and index."""
        return self.role, self.replica

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return describe_exit(self.exit_code, self.reason)

    @property
    def error_json(self) -> str:
        """Its error, in the shape of an error file."""
        return self.error or failure_json(self.ending, self.exit_code, self.ended_ns)


@light_dataclass(frozen=True)
class AppSnapshot:
    """All that one look tells of an app. Replicas are in the order of their roles and indexes."""

    app_id: str
    replicas: tuple[ReplicaSnapshot, ...] = ()
    roles: tuple[Role, ...] = ()
    name: str = ""
    """Name of the app; empty if it is not known."""
    native_state: AppState | None = None
    """State of the whole app by the backend's own word; ``None``: that of its replicas."""
    cancelled: bool = False
    """A user has asked for its end."""
    message: str = ""
    """The backend's own words about the app, such as why it waits."""
    restarts: int = -1
    """-1 if the backend does not tell."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    ui_url: str | None = None
    ends_on_failure: bool = False
    """The other replicas are ended when one has failed for good (option ``on_failure=end``)."""
    ending: bool | None = None
    """They are being ended now; ``None``: as soon as one has failed, without anybody's help."""
    created_ns: int | None = None
    """When it was launched, in nanoseconds since the epoch; ``None`` if it is not known."""
    min_replicas_count: bool = True
    """The backend lets as many replicas fail as ``min_replicas`` of their role allows."""

    @functools.cached_property
    def state(self) -> AppState:
        """State of the app."""
        if self.native_state is not None:
            return self.native_state
        return aggregate(self.replicas, self.cancelled, self._allowed_failures)

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
        return is_terminal(self.state)

    @functools.cached_property
    def failures(self) -> tuple[ReplicaSnapshot, ...]:
        """The replicas that failed, causes before consequences, then by the time of their end.

        Of those that ended at one time, as far as it is told, those with a known error are first.
        """
        order = {role: i for i, role in enumerate(dict.fromkeys(r.role for r in self.replicas))}

        def rank(replica: ReplicaSnapshot) -> tuple[bool, float, bool, int, int]:
            consequence = is_consequence(replica.error or "")
            ended = float("inf") if replica.ended_ns is None else replica.ended_ns
            return consequence, ended, not replica.error, order[replica.role], replica.replica

        return tuple(sorted((r for r in self.replicas if r.state is AppState.FAILED), key=rank))

    @functools.cached_property
    def fatal(self) -> ReplicaSnapshot | None:
        """The first failure, where there are more than ``min_replicas`` allows."""
        allowed = self._allowed_failures
        counts: dict[str, int] = {}
        for replica in self.failures:
            counts[replica.role] = counts.get(replica.role, 0) + 1
        if all(count <= allowed.get(role, 0) for role, count in counts.items()):
            return None
        return self.failures[0]

    @property
    def _allowed_failures(self) -> dict[str, int]:
        return allowed_failures(self.roles) if self.min_replicas_count else {}

    def find(self, key: ReplicaKey) -> ReplicaSnapshot | None:
        """One replica; ``None`` if there is none of that role and index."""
        return next((r for r in self.replicas if r.key == key), None)

    def with_errors(self, errors: Mapping[ReplicaKey, str]) -> "AppSnapshot":
        """The same with the errors of some replicas filled in."""
        if not errors:
            return self
        replicas = [replace(r, error=errors.get(r.key, r.error)) for r in self.replicas]
        return replace(self, replicas=tuple(replicas))


def allowed_failures(roles: Iterable[Role]) -> dict[str, int]:
    """How many replicas of each role may fail without failing the app."""
    return {
        role.name: role.num_replicas - role.min_replicas
        for role in roles
        if role.min_replicas is not None and role.min_replicas < role.num_replicas
    }


def aggregate(
    replicas: Sequence[ReplicaSnapshot],
    cancelled: bool = False,
    allowed: Mapping[str, int] | None = None,
) -> AppState:
    """State of an app by those of its replicas.

    >>> w = [ReplicaSnapshot("w", k, s) for k, s in enumerate([AppState.FAILED, AppState.RUNNING])]
    >>> aggregate(w), aggregate(w[:1])
    (RUNNING (3), FAILED (5))

    Args:
        cancelled: a user has asked for the end of the app.
        allowed: how many replicas of a role may fail.
    """
    states = {replica.state for replica in replicas}
    if not states:
        return AppState.UNKNOWN
    if not all(is_terminal(state) for state in states):
        return _live_state(states)
    if cancelled:
        return AppState.CANCELLED
    failed: dict[str, int] = {}
    for replica in replicas:
        if replica.state is AppState.FAILED:
            failed[replica.role] = failed.get(replica.role, 0) + 1
    allowed = allowed or {}
    if any(count > allowed.get(role, 0) for role, count in failed.items()):
        return AppState.FAILED
    return AppState.CANCELLED if AppState.CANCELLED in states else AppState.SUCCEEDED


def _live_state(states: "set[AppState]") -> AppState:
    """State of an app of which at least one replica has not ended."""
    if AppState.RUNNING in states:
        return AppState.RUNNING
    if AppState.UNKNOWN in states:
        return AppState.UNKNOWN
    if any(is_terminal(state) for state in states):
        return AppState.RUNNING  # some have ended, and the rest still waits
    return AppState.PENDING if AppState.PENDING in states else min(states)


# -- answers -------------------------------------------------------------------------------------


def to_response(snapshot: AppSnapshot) -> DescribeAppResponse:
    """The answer of ``describe``."""
    return DescribeAppResponse(
        app_id=snapshot.app_id,
        state=snapshot.state,
        num_restarts=snapshot.restarts,
        msg=message(snapshot) or NONE,
        structured_error_msg=_structured_error(snapshot),
        ui_url=snapshot.ui_url,
        metadata=dict(snapshot.metadata),
        roles_statuses=_statuses(snapshot),
        roles=list(snapshot.roles),
    )


def to_row(snapshot: AppSnapshot) -> ListAppResponse:
    """The row of ``list``."""
    state = snapshot.native_state  # 10,000 rows have no time to spare for the property
    if state is None:
        state = snapshot.state
    row = ListAppResponse(
        snapshot.app_id,
        state,
        name=snapshot.name,
        created_ns=snapshot.created_ns,
    )
    if snapshot.replicas:
        row.replicas = _counts(snapshot.replicas)
        row.times_ns = _times(snapshot)
    return row


def _counts(replicas: Sequence[ReplicaSnapshot]) -> tuple[int, int]:
    up = (AppState.RUNNING, AppState.SUCCEEDED)
    return sum(replica.state in up for replica in replicas), len(replicas)


def _times(snapshot: AppSnapshot) -> tuple[int, int] | None:
    """From the first start of a replica to the last end."""
    starts = [r.started_ns for r in snapshot.replicas if r.started_ns]
    if not starts:
        return None
    ends = [r.ended_ns or 0 for r in snapshot.replicas]
    return min(starts), (max(ends) if snapshot.terminal else 0)


def message(snapshot: AppSnapshot) -> str:
    """Why the app waits, is ending or has ended; empty if there is nothing to say."""
    parts = []
    if snapshot.fatal is not None and not snapshot.cancelled:
        parts.append(describe_failure(snapshot.fatal))
        ending = snapshot.ends_on_failure if snapshot.ending is None else snapshot.ending
        if ending and not snapshot.terminal:
            parts[0] += ", ending the other replicas"
    elif snapshot.cancelled:
        parts.append("cancelled" if snapshot.terminal else "being cancelled")
    if snapshot.message and snapshot.message not in parts:
        parts.append(snapshot.message)
    return "; ".join(parts)


def describe_failure(replica: ReplicaSnapshot) -> str:
    """The failure of one replica in one line: ``replica worker/1 exited with code 3``.

    With what it raised, if that is known: ``...: ValueError: no (train.py:41 in step)``.
    """
    told = f"replica {replica.role}/{replica.replica} {replica.ending}"
    if not replica.error:
        return told
    from .tracebacks import in_words

    raised = in_words(replica.error)
    return f"{told}: {raised}" if raised else told


def _structured_error(snapshot: AppSnapshot) -> str:
    failed = snapshot.fatal
    if failed is None or snapshot.state is AppState.CANCELLED:
        return NONE
    return failed.error_json


def _statuses(snapshot: AppSnapshot) -> list[RoleStatus]:
    by_role: dict[str, list[ReplicaStatus]] = {role.name: [] for role in snapshot.roles}
    for replica in snapshot.replicas:
        failed = replica.state is AppState.FAILED
        status = ReplicaStatus(
            id=replica.replica,
            role=replica.role,
            state=replica.state,
            hostname=replica.host,
            structured_error_msg=replica.error_json if failed else (replica.error or NONE),
        )
        by_role.setdefault(replica.role, []).append(status)
    return [RoleStatus(role, replicas) for role, replicas in by_role.items()]


def select_replicas(snapshot: AppSnapshot, wanted: Sequence[ReplicaKey] | None) -> list[ReplicaKey]:
    """The replicas that were asked for; all of them for ``None``.

    Raises:
        LogsNotFound: if the app has no such role or replica.
    """
    known = {replica.key: None for replica in snapshot.replicas}
    if wanted is None:
        return [*known]
    for role, k in dict.fromkeys(wanted):
        if (role, k) not in known:
            raise LogsNotFound(_no_replica(snapshot, role, k))
    return [*dict.fromkeys(wanted)]


def _no_replica(snapshot: AppSnapshot, role: str, k: int) -> str:
    counts: dict[str, int] = {}
    for replica in snapshot.replicas:
        counts[replica.role] = counts.get(replica.role, 0) + 1
    if role not in counts:
        meant = did_you_mean(role, counts)
        told = f"app `{snapshot.app_id}` has no role `{role}`, it has: {', '.join(counts)}"
        return f"{told}.{meant}" if meant else told
    last = max(r.replica for r in snapshot.replicas if r.role == role)
    return f"role `{role}` of app `{snapshot.app_id}` has replicas 0 to {last}, given: {k}"
