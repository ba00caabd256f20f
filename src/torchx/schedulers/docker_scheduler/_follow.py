"""Follows the output of containers, across restarts."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torchx.errors import DockerRefused
from torchx.schedulers._core.following import follow_merged
from torchx.schedulers._core.merging import TimedLine, as_chunk
from torchx.schedulers.api import LogChunk, LogQuery

from ._client import Daemon
from ._events import EventCursor, wait_for_event
from ._logs import OUTPUTS, LineReader, Source, open_log, read, read_now

_REOPEN_S = 0.2
_RESTART_S = 30.0
_REMEMBERED = 1000
"""Lines whose repetition is detected: two streams may be logged out of order."""
_ENDED = ("exited", "dead", "removing")


def read_logs(daemon: Daemon, sources: Sequence[Source], query: LogQuery) -> Iterator[LogChunk]:
    """Yields lines of these replicas, by time."""
    if not query.follow:
        return read_now(daemon, sources, query)
    followers = [Follower(daemon, source, query) for source in sources]
    if len(followers) > 1:
        return follow_merged(followers)
    return _follow_one(followers[0])


def _follow_one(follower: "Follower") -> Iterator[LogChunk]:
    try:
        for batch in follower.batches():
            if batch:
                yield as_chunk(follower.key, batch)
    finally:
        follower.close()


class Follower:
    """Reads one replica until its container has ended for good."""

    def __init__(self, daemon: Daemon, source: Source, query: LogQuery) -> None:
        self.key = source.key
        self._source = source
        self._daemon = daemon
        self._query = query
        self._stream: Any = None
        self._closed = False
        self._given: dict[int, int] = {}
        """Number of lines that were yielded, by time; only the last ones."""
        self._unfinished: list[int] = []
        """Times of the lines that were incomplete when the last stream ended."""

    def batches(self) -> Iterator[list[TimedLine]]:
        """Yields whole lines as they arrive; an empty batch when the daemon starts to send."""
        while not self._closed:
            # checked first, so that everything written before the end is read
            asked_ns = time.time_ns()
            ended = self._status() in _ENDED
            yield from self._rest() if ended else self._live()
            if ended or self._past():
                return
            self._wait(asked_ns)

    def close(self) -> None:
        """Ends ``batches``, also from another thread."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()

    def _status(self) -> str:
        record = self._daemon.inspect(self._source.container_id)
        return "dead" if record is None else str((record.get("State") or {}).get("Status"))

    def _rest(self) -> Iterator[list[TimedLine]]:
        """Yields the rest of an ended container's output."""
        skip = dict(self._given)
        try:
            for batch in read(self._daemon, self._source, self._remaining()):
                yield _without(batch, skip)
        except DockerRefused as err:
            if err.status != 404:  # removed
                raise

    def _live(self) -> Iterator[list[TimedLine]]:
        """Reads one stream of the daemon, which ends with each attempt. Incomplete lines wait."""
        from docker.types import CancellableStream

        skip = dict(self._given)
        reader = LineReader(OUTPUTS[self._query.stream])
        try:
            response = open_log(self._daemon, self._source, self._remaining(), follow=True)
        except DockerRefused as err:
            if err.status != 404:
                raise
            return
        chunks = response.iter_content(chunk_size=None)
        self._stream = stream = CancellableStream(chunks, response)
        if self._closed:
            stream.close()
        try:
            yield []
            for data in stream:
                batch = _without(reader.feed(data), skip)
                self._note(batch, reader)
                yield batch
        finally:
            stream.close()
        self._unfinished = reader.begun()

    def _note(self, batch: Sequence[TimedLine], reader: LineReader) -> None:
        """Records that lines were yielded."""
        given = self._given
        for written_ns, _ in batch:
            given[written_ns] = given.get(written_ns, 0) + 1
        # nothing after an incomplete line is dropped: it is read again from its start
        if len(given) > 2 * _REMEMBERED and not reader.begun():
            self._given = {at: given[at] for at in sorted(given)[-_REMEMBERED:]}

    def _remaining(self) -> LogQuery:
        """Returns the query without the lines before the recorded ones."""
        times = [*self._given, *self._unfinished]
        return replace(self._query, since_ns=min(times)) if times else self._query

    def _past(self) -> bool:
        until_ns = self._query.until_ns
        return until_ns is not None and time.time_ns() >= until_ns

    def _wait(self, since_ns: int) -> None:
        """Waits until there may be more to read."""
        status = self._status()
        if status == "running":  # running again, or the stream broke
            time.sleep(_REOPEN_S)
        elif status not in _ENDED:
            wait_s = _RESTART_S
            if self._query.until_ns is not None:
                wait_s = min(wait_s, max(0.0, (self._query.until_ns - time.time_ns()) / 1e9))
            filters = {"container": self._source.container_id}
            wait_for_event(self._daemon, filters, EventCursor(since_ns), wait_s)


def _without(batch: list[TimedLine], skip: "dict[int, int]") -> list[TimedLine]:
    """Returns the lines without those yielded before, which are removed from ``skip``."""
    if not skip:
        return batch
    new = []
    for line in batch:
        left = skip.get(line[0], 0)
        if left:
            skip[line[0]] = left - 1
        else:
            new.append(line)
    return new
