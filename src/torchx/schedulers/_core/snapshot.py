"""Snapshots: the state of an app from one query of the backend, and what is derived from it."""

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

    ``FAILED`` is final: a replica that will be retried is ``PENDING``. A replica that was ended
    because the app ended, by any signal, is ``CANCELLED``.
    """

    role: str
    replica: int
    state: AppState
    exit_code: int | None = None
    """As from ``wait(2)``, signals negative; ``None`` while it runs or if it is unknown."""
    reason: str = ""
    """The backend's reason why it waits or how it ended, such as ``out of memory``."""
    host: str = ""
    attempt: int = 0
    """0 for the first one."""
    started_ns: int | None = None
    """Nanoseconds since the epoch, like ``ended_ns``; ``None`` if unknown."""
    ended_ns: int | None = None
    error: str | None = None
    """JSON of the replica's error file, or of the exception that it printed."""
    log_path: str | None = None
    native_id: str = ""
    """The backend's name for it: a container, a pod, a step."""

    @property
    def key(self) -> ReplicaKey:
        """The role and index."""
        return self.role, self.replica

    @property
    def ending(self) -> str:
        """A description of how it ended."""
        return describe_exit(self.exit_code, self.reason)

    @property
    def error_json(self) -> str:
        """Its error, in the format of an error file."""
        return self.error or failure_json(self.ending, self.exit_code, self.ended_ns)


@light_dataclass(frozen=True)
class AppSnapshot:
    """The state of an app at one time. Replicas are ordered by role and index."""

    app_id: str
    replicas: tuple[ReplicaSnapshot, ...] = ()
    roles: tuple[Role, ...] = ()
    name: str = ""
    """Name of the app; empty if unknown."""
    native_state: AppState | None = None
    """State of the whole app as the backend reports it; ``None`` derives it from the replicas."""
    cancelled: bool = False
    """True if a user has requested its end."""
    message: str = ""
    """The backend's message about the app, such as why it waits."""
    restarts: int = -1
    """-1 if unknown."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    ui_url: str | None = None
    ends_on_failure: bool = False
    """True if the others are ended when one has failed for good (option ``on_failure=end``)."""
    ending: bool | None = None
    """True if they are being ended now; ``None`` if the backend does it after any failure."""
    created_ns: int | None = None
    """When it was launched, in nanoseconds since the epoch; ``None`` if unknown."""
    min_replicas_count: bool = True
    """True if the backend tolerates as many failures as ``min_replicas`` of a role allows."""

    @functools.cached_property
    def state(self) -> AppState:
        """State of the app."""
        if self.native_state is not None:
            return self.native_state
        return aggregate(self.replicas, self.cancelled, self._allowed_failures)

    @property
    def terminal(self) -> bool:
        """True if the state is final."""
        return is_terminal(self.state)

    @functools.cached_property
    def failures(self) -> tuple[ReplicaSnapshot, ...]:
        """The replicas that failed, causes before consequences, then by the time of their end.

        Among those that ended at the same time, those with a known error come first.
        """
        failed = [r for r in self.replicas if r.state is AppState.FAILED]
        if not failed:
            return ()
        order = {role: i for i, role in enumerate(dict.fromkeys(r.role for r in self.replicas))}

        def rank(replica: ReplicaSnapshot) -> tuple[bool, float, bool, int, int]:
            consequence = is_consequence(replica.error or "")
            ended = float("inf") if replica.ended_ns is None else replica.ended_ns
            return consequence, ended, not replica.error, order[replica.role], replica.replica

        return tuple(sorted(failed, key=rank))

    @functools.cached_property
    def fatal(self) -> ReplicaSnapshot | None:
        """The first failure, if there are more than ``min_replicas`` allows."""
        if not self.failures:
            return None
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
        """Returns a replica; ``None`` if there is none of that role and index."""
        return next((r for r in self.replicas if r.key == key), None)

    def with_errors(self, errors: Mapping[ReplicaKey, str]) -> "AppSnapshot":
        """Returns a copy with the errors of some replicas filled in."""
        if not errors:
            return self
        replicas = [replace(r, error=errors.get(r.key, r.error)) for r in self.replicas]
        return replace(self, replicas=tuple(replicas))


def allowed_failures(roles: Iterable[Role]) -> dict[str, int]:
    """Returns, for each role, how many replicas may fail without failing the app."""
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
    """Derives the state of an app from those of its replicas.

    >>> w = [ReplicaSnapshot("w", k, s) for k, s in enumerate([AppState.FAILED, AppState.RUNNING])]
    >>> aggregate(w), aggregate(w[:1])
    (RUNNING (3), FAILED (5))

    Args:
        cancelled: a user has requested the end of the app.
        allowed: number of replicas of each role that may fail.
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
    """Derives the state of an app with at least one replica that has not ended."""
    if AppState.RUNNING in states:
        return AppState.RUNNING
    if AppState.UNKNOWN in states:
        return AppState.UNKNOWN
    if any(is_terminal(state) for state in states):
        return AppState.RUNNING  # some have ended, and the rest still waits
    return AppState.PENDING if AppState.PENDING in states else min(states)


# -- answers -------------------------------------------------------------------------------------


def to_response(snapshot: AppSnapshot) -> DescribeAppResponse:
    """Returns the response of ``describe``."""
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
    """Returns the row of ``list``."""
    state = snapshot.native_state  # the property is too slow for 10,000 rows
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
    """Returns the first start and the last end of replicas; ``None`` if unknown."""
    starts = [r.started_ns for r in snapshot.replicas if r.started_ns]
    if not starts:
        return None
    ends = [r.ended_ns or 0 for r in snapshot.replicas]
    return min(starts), (max(ends) if snapshot.terminal else 0)


def message(snapshot: AppSnapshot) -> str:
    """Returns why the app waits, is ending or has ended; empty if there is no reason."""
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
    """Describes a failed replica in one line: ``replica worker/1 exited with code 3``.

    The exception follows, if known: ``...: ValueError: no (train.py:41 in step)``.
    """
    failed = f"replica {replica.role}/{replica.replica} {replica.ending}"
    if not replica.error:
        return failed
    from .tracebacks import in_words

    raised = in_words(replica.error)
    return f"{failed}: {raised}" if raised else failed


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
    """Returns the requested replicas; all for ``None``.

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
        text = f"app `{snapshot.app_id}` has no role `{role}`, it has: {', '.join(counts)}"
        return f"{text}.{meant}" if meant else text
    last = max(r.replica for r in snapshot.replicas if r.role == role)
    return f"role `{role}` of app `{snapshot.app_id}` has replicas 0 to {last}, given: {k}"
