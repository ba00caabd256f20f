"""Reads the logs of local jobs: one replica or many, by time, followed live, and from the end."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from torchx.schedulers._core.logs import joined
from torchx.schedulers._core.unfinished import Shown, wanted
from torchx.schedulers.api import (
    LogChunk,
    LogKey,
    LogQuery,
    LogReport,
    ReplicaSnapshot,
    merge_by_time,
)

from ._log_index import AttemptReader, verify_attempt
from ._supervise.format import attempt_dir

_FOREVER_NS = 1 << 64


class Waker(Protocol):
    """The interface of ``_client.Follower`` for readers."""

    @property
    def live(self) -> bool: ...
    def wait(self, timeout_s: float | None) -> None: ...
    def close(self) -> None: ...


def read(
    replicas: Sequence[ReplicaSnapshot], query: LogQuery, waker: Callable[[], Waker]
) -> Iterator[LogChunk]:
    """Yields whole lines of these replicas, in the order in which they were written.

    Args:
        waker: creates the object that wakes this reader when there are new lines; for
            ``query.follow``.
    """
    sources = [Source(replica, query) for replica in replicas]
    if query.follow:
        return _follow(sources, query, waker)
    if query.tail is not None:
        return merge_by_time([source.last(query.tail) for source in sources])
    return _read_once(sources, query)


class Source:
    """The logs of a replica, whose attempts are read one after the other."""

    def __init__(self, replica: ReplicaSnapshot, query: LogQuery) -> None:
        self._replica = replica
        self._folder = replica_dir(replica)
        self._stream = query.stream
        self._only = query.attempt
        self._since_ns = query.since_ns or 0
        self._until_ns = _FOREVER_NS if query.until_ns is None else query.until_ns
        self._reader = self._open_attempt(query.attempt or 0)

    def _open_attempt(self, attempt: int) -> AttemptReader:
        key = LogKey(self._replica.role, self._replica.replica, attempt)
        return AttemptReader(attempt_dir(self._folder, attempt), key, self._stream)

    def _has_attempt(self, attempt: int) -> bool:
        return self._only is None and os.path.isdir(attempt_dir(self._folder, attempt))

    def chunks(self, limit_ns: int, apart: bool) -> Iterator[LogChunk]:
        """Yields new lines up to that time; continues with the next attempt after one ends."""
        limit_ns = min(limit_ns, self._until_ns)
        while True:
            batches = self._reader.batches(limit_ns)
            if batches:
                batches = [b for b in batches if b.time_ns >= self._since_ns]
                yield from self._reader.chunks(batches, apart)
                continue  # there may be more than one read takes
            following = self._reader.key.attempt + 1
            if not self._reader.complete or not self._has_attempt(following):
                return
            self._reader.close()
            self._reader = self._open_attempt(following)

    def begun(self, shown: Shown) -> Iterator[LogChunk]:
        """Yields the new part of an incomplete line."""
        text = shown.more(self._reader.unfinished())
        if text:
            yield self._reader.key, time.time_ns(), text

    def latest_ns(self) -> int:
        """Returns when the last batch of the current attempt was written."""
        return self._reader.latest_ns()

    def newest_ns(self) -> int:
        """Returns when the last batch of the latest non-empty attempt was written."""
        attempt = self._last_attempt()
        while True:
            reader = self._open_attempt(attempt)
            try:
                found = reader.latest_ns()
            finally:
                reader.close()
            if found or attempt <= (self._only or 0):
                return found
            attempt -= 1

    def last(self, count: int) -> Iterator[LogChunk]:
        """Yields the last lines of all attempts together, read from the end."""
        chunks: list[LogChunk] = []
        attempt = self._last_attempt()
        while count > 0 and attempt >= (self._only or 0):
            reader = self._open_attempt(attempt)
            try:
                for chunk in self._backwards(reader):
                    kept, lines = _cut(chunk[2], count)
                    chunks.append((chunk[0], chunk[1], kept))
                    count -= lines
                    if count <= 0:
                        break
            finally:
                reader.close()
            attempt -= 1
        return reversed(chunks)

    def _backwards(self, reader: AttemptReader) -> Iterator[LogChunk]:
        for batch in reader.backwards():
            if batch.time_ns < self._since_ns:
                return
            if batch.time_ns <= self._until_ns:
                yield from reader.chunks([batch], apart=False)

    def _last_attempt(self) -> int:
        attempt = self._replica.attempt if self._only is None else self._only
        while self._has_attempt(attempt + 1):
            attempt += 1
        return attempt

    @property
    def complete(self) -> bool:
        """Returns True if the only requested attempt was read to its end."""
        return self._only is not None and self._reader.complete

    def close(self) -> None:
        """Closes every file."""
        self._reader.close()


def _cut(data: bytes, count: int) -> "tuple[bytes, int]":
    """Returns at most that many last lines, and their number."""
    at = len(data) - data.endswith(b"\n")
    for found in range(count):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data, found + 1
    return data[at + 1 :], count


def replica_dir(replica: ReplicaSnapshot) -> str:
    """Returns the log folder of a replica's first attempt."""
    folder = (replica.log_path or "").rpartition("/")[0]
    return folder.rpartition("/")[0] if replica.attempt else folder


def _read_once(sources: "list[Source]", query: LogQuery) -> Iterator[LogChunk]:
    """Yields the current lines, however fast more are being written."""
    limit_ns = max((source.newest_ns() for source in sources), default=0)
    try:
        yield from _pass(sources, limit_ns)
    finally:
        for source in sources:
            source.close()


def _pass(sources: "list[Source]", limit_ns: int) -> Iterator[LogChunk]:
    if len(sources) == 1:
        return sources[0].chunks(limit_ns, apart=False)
    return joined(merge_by_time([source.chunks(limit_ns, apart=True) for source in sources]))


def _follow(
    sources: "list[Source]", query: LogQuery, make_waker: Callable[[], Waker]
) -> Iterator[LogChunk]:
    waker = make_waker()
    shown = Shown()
    try:
        while True:
            live = waker.live
            # lines written while the replicas are read wait, so that the order holds: all lines
            # older than the newest current one are there now
            several = len(sources) > 1
            limit_ns = _latest_ns(sources) if several else _FOREVER_NS
            now_ns = time.time_ns()
            moved = False
            for key, written_ns, data in _pass(sources, limit_ns):
                moved = True
                rest = shown.rest(data)
                if rest:
                    yield key, written_ns, rest
            if moved or (several and _latest_ns(sources) > limit_ns):
                continue  # more lines may have arrived while reading
            if query.until_ns is not None and now_ns >= query.until_ns:
                return
            if not several and wanted():
                yield from sources[0].begun(shown)
            if not live or all(source.complete for source in sources):
                return
            left_s = None if query.until_ns is None else (query.until_ns - now_ns) / 1e9
            waker.wait(left_s)
    finally:
        waker.close()
        for source in sources:
            source.close()


def _latest_ns(sources: "list[Source]") -> int:
    return max(source.latest_ns() for source in sources)


def verify(replica: ReplicaSnapshot) -> "Iterator[LogReport]":
    """Compares the files of all attempts of a replica with their indexes."""
    for attempt in range(replica.attempt + 1):
        folder = attempt_dir(replica_dir(replica), attempt)
        yield from verify_attempt(folder, LogKey(replica.role, replica.replica, attempt))
