"""Methods of schedulers that are derived from a snapshot and the log lines of replicas."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from torchx._startup.dataclass import replace
from torchx.errors import LogsNotFound, TorchXError
from torchx.specs.api import AppState

from . import logs
from .exits import exception_json, is_consequence, with_extra
from .logs import LogChunk, LogQuery
from .responses import FailedReplica, LogBlock, Stream
from .snapshot import AppSnapshot, ReplicaKey, ReplicaSnapshot
from .tracebacks import Raised, in_words, raised_by, raised_in, rank_in

if TYPE_CHECKING:
    import re

CAUSES_SEARCHED = 8
"""Number of failed replicas whose output is searched for a traceback."""
CAUSE_LINES = 200
"""Number of a replica's last lines that are searched."""
LAST_LINES_OF = 32
"""Number of failed replicas whose last lines are read."""

ReadLogs = Callable[[Sequence[ReplicaKey], LogQuery], Iterator[LogChunk]]
"""Reads the lines of some replicas of an app."""


class LogReader:
    """Reads the lines of one app through its scheduler."""

    __slots__ = ("attempts", "read", "separate_streams")

    def __init__(self, read: ReadLogs, separate_streams: bool, attempts: bool) -> None:
        self.read = read
        self.separate_streams = separate_streams
        self.attempts = attempts

    def blocks(
        self,
        replicas: Sequence[ReplicaKey],
        query: LogQuery,
        pattern: "re.Pattern[str] | None",
        count: int | None,
        away: Callable[[str], None],
    ) -> Iterator[LogBlock]:
        """Yields blocks of the requested lines.

        Args:
            pattern: only lines in which it is found.
            count: only this many of the last lines of each replica, and later ones.
            away: called once for each outage while the lines are followed.
        """

        def read(query: LogQuery) -> Iterator[LogChunk]:
            if not query.follow:
                return logs.in_range(self.read(replicas, query), query)
            chunks = logs.following_through_outages(lambda: self.read(replicas, query), away)
            return logs.in_range(chunks, query)

        if count is not None:
            if not query.follow and pattern is None:
                query = replace(query, tail=count)
            return logs.last_then_follow(read, query, count, pattern)
        blocks = logs.to_blocks(read(query))
        return logs.matching(blocks, pattern) if pattern is not None else blocks

    def last_lines(self, replica: ReplicaSnapshot, count: int) -> list[str]:
        """Returns the last lines of a replica's stderr, or of all its output if that is empty."""
        return [line.rstrip() for line in self._last(replica, count) if line.strip()][-count:]

    def cause(self, replica: ReplicaSnapshot) -> Raised | None:
        """Returns the exception at the end of a replica's output; ``None`` if there is none."""
        for text in self._outputs(replica):
            found = raised_in(text)
            if found is not None:
                return found
        return None

    def rank_of(self, replica: ReplicaSnapshot, exception: str) -> int | None:
        """Returns the rank that raised an exception, from the replica's output."""
        ranks = (rank_in(text, exception) for text in self._outputs(replica))
        return next((rank for rank in ranks if rank is not None), None)

    def _outputs(self, replica: ReplicaSnapshot) -> Iterator[str]:
        streams = (Stream.STDERR, Stream.STDOUT) if self.separate_streams else (Stream.COMBINED,)
        for stream in streams:
            yield "".join(self._lines(replica, stream, CAUSE_LINES))

    def _last(self, replica: ReplicaSnapshot, count: int) -> list[str]:
        if self.separate_streams:
            # more than needed: empty ones do not count
            lines = self._lines(replica, Stream.STDERR, 5 * count)
            if any(line.strip() for line in lines):
                return lines
        return self._lines(replica, Stream.COMBINED, 5 * count)

    def _lines(self, replica: ReplicaSnapshot, stream: Stream, count: int) -> list[str]:
        """Returns the last lines of the latest attempt; empty if they cannot be read."""
        attempt = replica.attempt if self.attempts else None
        query = LogQuery(stream, attempt=attempt, tail=count)
        try:
            blocks = logs.to_blocks(self.read([replica.key], query))
            return [*logs.lines_of(logs.last_lines(blocks, count))]
        except TorchXError:
            return []


def failed_replicas(
    snapshot: AppSnapshot, reader: LogReader | None, max_lines: int
) -> list[FailedReplica]:
    """Returns the failed replicas, first failure first; none of a cancelled app."""
    if snapshot.cancelled:
        return []
    return [
        FailedReplica(
            role=replica.role,
            replica=replica.replica,
            attempt=replica.attempt,
            exit_code=replica.exit_code,
            reason=replica.ending,
            log_path=replica.log_path,
            last_lines=(
                telling_lines(replica, reader, max_lines)
                if reader is not None and i < LAST_LINES_OF
                else []
            ),
            error=in_words(replica.error),
        )
        for i, replica in enumerate(snapshot.failures)
    ]


def telling_lines(replica: ReplicaSnapshot, reader: LogReader, count: int) -> list[str]:
    """Returns the last lines of a replica, or those of its exception if others follow it."""
    lines = reader.last_lines(replica, count)
    raised = raised_by(replica.error)
    if raised is None or not raised.callstack:
        return lines
    if lines and raised.exception in lines[-1]:
        return lines
    return raised.callstack.rstrip().split("\n")[-count:]


def with_causes(snapshot: AppSnapshot, reader: LogReader | None) -> AppSnapshot:
    """Returns the snapshot with the exceptions that the first failed replicas printed.

    An error file with an exception is used; output is searched only without one, or if it only
    reports the loss of another process.
    """
    if reader is None or snapshot.fatal is None or snapshot.cancelled:
        return snapshot
    snapshot = snapshot.with_errors(_printed_errors(snapshot, reader))
    first = snapshot.failures[0]
    if first.error and is_consequence(first.error):
        elsewhere = _raised_elsewhere(snapshot, reader)
        if elsewhere is not None:
            return snapshot.with_errors({first.key: elsewhere})
    return snapshot


def _printed_errors(snapshot: AppSnapshot, reader: LogReader) -> dict[ReplicaKey, str]:
    """Returns exceptions printed by failed replicas, up to the first that is no consequence."""
    found: dict[ReplicaKey, str] = {}
    for replica in snapshot.failures[:CAUSES_SEARCHED]:
        error = replica.error or ""
        if "Traceback" in error:
            if is_consequence(error):
                continue
            if (ranked := _ranked(replica, reader)) is not None:
                found[replica.key] = ranked
            break
        if replica.exit_code is not None and replica.exit_code < 0:
            continue  # a signal leaves no traceback, and an earlier one would mislead
        printed = reader.cause(replica)
        if printed is not None:
            found[replica.key] = _error_json(replica, printed)
            if not is_consequence(printed.callstack):
                break
    return found


def _error_json(replica: ReplicaSnapshot, raised: Raised) -> str:
    code, ended_ns = replica.exit_code, replica.ended_ns
    return exception_json(raised.exception, raised.callstack, code, ended_ns, raised.rank)


def _raised_elsewhere(snapshot: AppSnapshot, reader: LogReader) -> str | None:
    """Returns the exception of a replica that has not ended yet, while others have noticed it.

    The worker of one node may fail before all, and the launcher of that node end last.
    """
    others = [r for r in snapshot.replicas if r.state in (AppState.RUNNING, AppState.CANCELLED)]
    for replica in others[:CAUSES_SEARCHED]:
        raised = raised_by(replica.error) or reader.cause(replica)
        if raised is not None and not is_consequence(f"{raised.exception}{raised.callstack}"):
            error = _error_json(replica, raised)
            return with_extra(error, "replica", f"{replica.role}/{replica.replica}")
    return None


def _ranked(replica: ReplicaSnapshot, reader: LogReader) -> str | None:
    """Adds the rank to the error file of a torchrun worker, which lacks it."""
    recorded = raised_by(replica.error)
    if recorded is None or recorded.rank is not None:
        return None
    rank = reader.rank_of(replica, recorded.exception)
    return None if rank is None else with_extra(replica.error or "", "rank", rank)


def check_attempt(
    snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], attempt: int | None
) -> None:
    """Refuses an attempt that none of the replicas has had.

    Raises:
        LogsNotFound: with the existing attempts.
    """
    if attempt is None:
        return
    wanted = set(replicas)
    latest = max((r.attempt for r in snapshot.replicas if r.key in wanted), default=0)
    if attempt > latest:
        had = "only attempt 0" if latest == 0 else f"attempts 0 to {latest}"
        msg = f"there is no attempt {attempt} of app `{snapshot.app_id}`, it had {had}"
        raise LogsNotFound(msg)
