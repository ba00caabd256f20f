"""Reads the logs of local jobs: one replica or many, by time, followed live, and from the end."""

import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from torchx.schedulers._core.logs import joined
from torchx.schedulers.api import (
    LogChunk,
    LogKey,
    LogQuery,
    LogReport,
    ReplicaSnapshot,
    Stream,
    merge_by_time,
)

from ._supervise.format import (
    CONTINUED,
    INDEX_RECORD_BYTES,
    STREAM_END,
    STREAM_STDERR,
    STREAM_STDOUT,
    attempt_dir,
)

READ_BYTES = 1 << 17
"""Size of the pieces in which logs are read: small enough to stay in the processor's cache."""
_INDEX_BYTES = READ_BYTES // INDEX_RECORD_BYTES * INDEX_RECORD_BYTES
_RECORD = struct.Struct("<QQQQQ")
_FOREVER_NS = 1 << 64
_FILES = {
    Stream.STDOUT: ("stdout.log", STREAM_STDOUT),
    Stream.STDERR: ("stderr.log", STREAM_STDERR),
    Stream.COMBINED: ("combined.log", None),
}


class Waker(Protocol):
    """What ``_client.Follower`` offers a reader."""

    @property
    def live(self) -> bool: ...
    def wait(self, timeout_s: float | None) -> None: ...
    def close(self) -> None: ...


def read(
    replicas: Sequence[ReplicaSnapshot], query: LogQuery, waker: Callable[[], Waker]
) -> Iterator[LogChunk]:
    """Whole lines of these replicas, in the order in which they were written.

    Args:
        waker: makes what wakes this reader when there is more; for ``query.follow``.
    """
    sources = [Source(replica, query) for replica in replicas]
    if query.follow:
        return _follow(sources, query, waker)
    if query.tail is not None:
        return merge_by_time([source.last(query.tail) for source in sources])
    return _read_once(sources, query)


class Batch(NamedTuple):
    """Whole lines that were written at one time: a range of bytes in a log file."""

    time_ns: int
    start: int
    end: int
    piece: bool
    """It is a piece of a line that was too long for one, and not the last."""


class AttemptReader:
    """Reads the index of one attempt as it grows, and the lines it speaks of."""

    def __init__(self, folder: str, key: LogKey, stream: Stream) -> None:
        name, self._kind = _FILES[stream]
        self._path = f"{folder}/{name}"
        self._index_path = f"{folder}/combined.idx"
        self._data_fd = -1
        self._index_fd = -1
        self._index_at = 0
        self._end = 0
        self._lines = 0
        self.key = key
        self.complete = False
        """Whether the end of the log has been seen."""

    def batches(self, until_ns: int) -> "list[Batch]":
        """Some of what was written since the last call and up to that time, in order."""
        if self.complete or not self._open():
            return []
        while True:
            data = os.pread(self._index_fd, _INDEX_BYTES, self._index_at)
            found, more = self._parse(data, until_ns)
            if found or not more:
                return found

    def _parse(self, data: bytes, until_ns: int) -> "tuple[list[Batch], bool]":
        """The batches in a piece of the index, and whether there may be others behind it."""
        found: list[Batch] = []
        for offset in range(0, len(data) - INDEX_RECORD_BYTES + 1, INDEX_RECORD_BYTES):
            time_ns, kind, lines, stream_end, combined_end = _RECORD.unpack_from(data, offset)
            if time_ns > until_ns:
                return found, False
            self._index_at += INDEX_RECORD_BYTES
            if kind == STREAM_END:
                self.complete = True
                return found, False
            if self._kind is None:
                found.append(Batch(time_ns, self._end, combined_end, False))
                self._end = combined_end
            elif kind == self._kind:
                found.append(Batch(time_ns, self._end, stream_end, lines == self._lines))
                self._end, self._lines = stream_end, lines
        return found, len(data) == _INDEX_BYTES

    def backwards(self) -> Iterator[Batch]:
        """All batches, the last one first."""
        later: tuple[int, int, int] | None = None
        for time_ns, kind, lines, stream_end, combined_end in self._records_backwards():
            if kind == STREAM_END or self._kind not in (None, kind):
                continue
            end = combined_end if self._kind is None else stream_end
            if later is not None:
                yield self._batch(later, end, lines)
            later = (time_ns, end, lines)
        if later is not None:
            yield self._batch(later, 0, 0)

    def _batch(self, later: "tuple[int, int, int]", start: int, lines_before: int) -> Batch:
        time_ns, end, lines = later
        return Batch(time_ns, start, end, self._kind is not None and lines == lines_before)

    def _records_backwards(self) -> "Iterator[tuple[int, int, int, int, int]]":
        end = self._index_end() if self._open() else 0
        while end > 0:
            at = max(0, end - _INDEX_BYTES)
            data = os.pread(self._index_fd, end - at, at)
            for offset in range(end - at - INDEX_RECORD_BYTES, -1, -INDEX_RECORD_BYTES):
                yield _RECORD.unpack_from(data, offset)
            end = at

    def latest_ns(self) -> int:
        """When the last batch was written that is in the index now; 0 if there is none."""
        end = self._index_end() if self._open() else 0
        if end == 0:
            return 0
        last = os.pread(self._index_fd, INDEX_RECORD_BYTES, end - INDEX_RECORD_BYTES)
        return int.from_bytes(last[:8], "little")

    def _index_end(self) -> int:
        return os.fstat(self._index_fd).st_size // INDEX_RECORD_BYTES * INDEX_RECORD_BYTES

    def chunks(self, batches: "list[Batch]", apart: bool) -> Iterator[LogChunk]:
        """The lines of these batches.

        Args:
            apart: each batch with its own time; else neighbours as one, up to a bound.
        """
        for window in _windows(batches):
            start = window[0].start
            data = _pread_all(self._data_fd, start, window[-1].end)
            if window[-1].piece:
                data += CONTINUED
            if not apart or len(window) == 1:
                yield self.key, window[0].time_ns, data
                continue
            for batch in window:
                end = len(data) if batch is window[-1] else batch.end - start
                yield self.key, batch.time_ns, data[batch.start - start : end]

    def _open(self) -> bool:
        if self._index_fd >= 0:
            return True
        try:
            self._data_fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._index_fd = os.open(self._index_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.close()
            return False
        return True

    def close(self) -> None:
        """Closes the files."""
        for fd in (self._data_fd, self._index_fd):
            if fd >= 0:
                os.close(fd)
        self._data_fd = self._index_fd = -1


def _windows(batches: "list[Batch]") -> "Iterator[list[Batch]]":
    """Neighbouring batches, up to a bound; a piece of a line is the last of its window."""
    window: list[Batch] = []
    for batch in batches:
        if window and (
            batch.start != window[-1].end
            or batch.end - window[0].start > READ_BYTES
            or window[-1].piece
        ):
            yield window
            window = []
        window.append(batch)
    if window:
        yield window


def _pread_all(fd: int, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        part = os.pread(fd, min(end - start, READ_BYTES), start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Source:
    """A replica whose attempts are read one after the other."""

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
        """What is new up to that time; goes on to the next attempt when one is complete."""
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

    def latest_ns(self) -> int:
        """When the last batch was written of the attempt that is being read."""
        return self._reader.latest_ns()

    def newest_ns(self) -> int:
        """When the last batch was written of the latest attempt that has any."""
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
        """The last lines of all attempts together, read from the end."""
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
        """Whether the only attempt asked for was read to its end."""
        return self._only is not None and self._reader.complete

    def close(self) -> None:
        """Closes every file."""
        self._reader.close()


def _cut(data: bytes, count: int) -> "tuple[bytes, int]":
    """The last lines, at most so many, and how many they are."""
    at = len(data) - data.endswith(b"\n")
    for found in range(count):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data, found + 1
    return data[at + 1 :], count


def replica_dir(replica: ReplicaSnapshot) -> str:
    """Folder of the logs of a replica's first attempt."""
    folder = (replica.log_path or "").rpartition("/")[0]
    return folder.rpartition("/")[0] if replica.attempt else folder


def _read_once(sources: "list[Source]", query: LogQuery) -> Iterator[LogChunk]:
    """What is there now, however fast more is being written."""
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
    try:
        while True:
            live = waker.live
            # what several replicas write while they are read waits, so that the order holds: all
            # that is older than the newest that is there now is there as well
            several = len(sources) > 1
            limit_ns = _latest_ns(sources) if several else _FOREVER_NS
            now_ns = time.time_ns()
            moved = False
            for chunk in _pass(sources, limit_ns):
                moved = True
                yield chunk
            if moved or (several and _latest_ns(sources) > limit_ns):
                continue  # reading took time in which more may have come
            if query.until_ns is not None and now_ns >= query.until_ns:
                return
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
    """Compares the files of all attempts of a replica with what their indexes say was written."""
    for attempt in range(replica.attempt + 1):
        folder = attempt_dir(replica_dir(replica), attempt)
        yield from _verify_attempt(folder, LogKey(replica.role, replica.replica, attempt))


def _verify_attempt(folder: str, key: LogKey) -> "list[LogReport]":
    try:
        with open(f"{folder}/combined.idx", "rb") as f:
            index = f.read()
    except OSError as err:
        unreadable = f"the index cannot be read: {err.strerror}"
        return [LogReport(*key, Stream.COMBINED, 0, 0, False, unreadable)]
    totals = {STREAM_STDOUT: (0, 0), STREAM_STDERR: (0, 0)}
    combined_end, ended = 0, False
    whole = len(index) // INDEX_RECORD_BYTES * INDEX_RECORD_BYTES
    for _, kind, lines, stream_end, end in _RECORD.iter_unpack(index[:whole]):
        combined_end = end
        if kind == STREAM_END:
            ended = True
        else:
            totals[kind] = (lines, stream_end)
    end_problem = None if ended else "the log has no end mark: it is still written, or was cut off"
    reports = []
    for stream, (name, kind) in _FILES.items():
        if kind is None:
            lines, size = sum(n for n, _ in totals.values()), combined_end
        else:
            lines, size = totals[kind]
        found_lines, found_size, unended = _count(f"{folder}/{name}", size)
        problem: str | None = end_problem
        if found_size < size:
            problem = f"{size - found_size} of {size} bytes are missing"
        elif kind is not None and found_lines + unended < lines:
            problem = f"{lines - found_lines - unended} of {lines} lines are missing"
        reports.append(LogReport(*key, stream, lines, size, problem is None, problem))
    return reports


def _count(path: str, end: int) -> "tuple[int, int, int]":
    """Newlines and bytes up to ``end``, and 1 if the last line there has no newline."""
    lines = size = 0
    last = b"\n"
    try:
        with open(path, "rb") as f:
            while size < end and (data := f.read(min(READ_BYTES, end - size))):
                lines += data.count(b"\n")
                size += len(data)
                last = data[-1:]
    except OSError:
        return 0, 0, 0
    return lines, size, int(last != b"\n")
