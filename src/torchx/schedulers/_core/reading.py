"""Reads the requested, or the last, log lines of an app through its scheduler."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from torchx._startup.dataclass import light_dataclass, replace
from torchx.errors import LogsNotFound, TorchXError, UnknownApp

from . import logs
from .checks import check_query
from .logs import LogChunk, LogQuery
from .responses import LogBlock, SchedulerFeatures, Stream
from .snapshot import AppSnapshot, ReplicaKey, ReplicaSnapshot, select_replicas

if TYPE_CHECKING:
    import re
    from datetime import datetime


_OUTPUT_LINES = 200
"""How many of a replica's last lines are read to find out what went wrong."""

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

    def outputs(self, replica: ReplicaSnapshot) -> Iterator[str]:
        """Yields the last lines of a replica's output, stderr first if it is separate."""
        streams = (Stream.STDERR, Stream.STDOUT) if self.separate_streams else (Stream.COMBINED,)
        for stream in streams:
            yield "".join(self._lines(replica, stream, _OUTPUT_LINES))

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


class _Source(Protocol):
    """The interface of a scheduler for reading its logs."""

    backend: str

    @property
    def features(self) -> SchedulerFeatures: ...

    def look_for_logs(self, app_id: str) -> AppSnapshot | None: ...

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]: ...


def reader_of(scheduler: _Source, snapshot: AppSnapshot) -> LogReader:
    """Returns the reader for one app of a scheduler with logs."""
    return LogReader(
        lambda replicas, query: scheduler.read_logs(snapshot, replicas, query),
        scheduler.features.separate_streams,
        scheduler.features.attempts,
    )


@light_dataclass(frozen=True)
class LinesWanted:
    """The arguments of ``Scheduler.log_blocks``, which documents them."""

    replicas: Sequence[ReplicaKey] | None
    regex: str | None = None
    since: "datetime | None" = None
    until: "datetime | None" = None
    follow: bool = False
    streams: Stream | None = None
    attempt: int | None = None
    tail_lines: int | None = None


def log_blocks(
    scheduler: _Source, app_id: str, wanted: LinesWanted, away: Callable[[str, str], None]
) -> Iterator[LogBlock]:
    """Yields the requested lines of an app; refuses unsupported requests at the call.

    Args:
        away: called once for each outage while the lines are followed, with the name of the backend
            and its message.
    """
    query = LogQuery(
        stream=Stream(wanted.streams) if wanted.streams is not None else Stream.COMBINED,
        since_ns=logs.to_ns(wanted.since),
        until_ns=logs.to_ns(wanted.until),
        follow=wanted.follow,
        attempt=wanted.attempt,
    )
    check_query(query, scheduler.features, scheduler.backend)
    pattern = logs.compiled(wanted.regex) if wanted.regex is not None else None
    snapshot = scheduler.look_for_logs(app_id)
    if snapshot is None:
        raise UnknownApp(f"`{scheduler.backend}` does not know app `{app_id}`")
    replicas = select_replicas(snapshot, wanted.replicas)
    check_attempt(snapshot, replicas, wanted.attempt)
    return reader_of(scheduler, snapshot).blocks(
        replicas, query, pattern, wanted.tail_lines, lambda words: away(scheduler.backend, words)
    )


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
