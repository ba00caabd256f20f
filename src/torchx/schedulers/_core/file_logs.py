"""Log files of many replicas, read and followed in one thread.

A replica has one or more files for each attempt. They are open only while they are read: thousands
may be followed, and on a network file system text from another machine becomes visible only when a
file is opened again. An unfinished line is not kept in memory but read again when it is complete.
"""

import heapq
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from .logs import LogChunk, LogKey
from .snapshot import ReplicaKey

READ_BYTES = 1 << 17
LONG_LINE_BYTES = 1 << 24
"""A longer line is delivered in consecutive pieces."""
PIECE_BYTES = 1 << 20
TURN_BYTES = 1 << 23
"""Bytes of one replica that are read before others have their turn."""
SHORTEST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

PathsOf = Callable[[ReplicaKey, int], Sequence[str]]
"""The files of an attempt of a replica, in the order in which they are read."""


class EndDetector(Protocol):
    """Detects the progress of replicas at little cost for the backend."""

    def look(self, quiet_s: float) -> bool:
        """Updates the state; returns True if an attempt may have ended.

        Args:
            quiet_s: seconds for which no replica has written a line.
        """

    def latest(self, replica: ReplicaKey) -> int:
        """Returns the latest attempt that has started; earlier ones write nothing more."""

    def ended(self, replica: ReplicaKey) -> bool:
        """Returns True if no attempt writes anything more."""


class GrowingFile:
    """A file that may not exist yet, read in whole lines as it grows."""

    def __init__(self, path: str, start: int = 0) -> None:
        self._path = path
        self._start = start
        """Offset of the first line that was not returned yet."""
        self._scanned = start
        """There is no newline between that offset and this one."""

    def new_lines(self, limit: int = TURN_BYTES) -> Iterator[bytes]:
        """Yields lines completed since the last call, up to about that many bytes."""
        stop = self._start + limit
        more = True
        while more and self._start < stop:
            data = _read(self._path, self._scanned, READ_BYTES)
            more = len(data) == READ_BYTES
            end = data.rfind(b"\n") + 1
            if end and self._scanned == self._start:
                yield data[:end]
                self._start += end
            elif end:
                first = data.find(b"\n") + 1
                yield from self._pieces(self._scanned + first)
                if first < end:
                    yield data[first:end]
                self._start = self._scanned + end
            self._scanned += len(data)

    def rest(self) -> Iterator[bytes]:
        """Yields the last line, if it has no newline."""
        end = _size(self._path)
        if end > self._start:
            yield from self._pieces(end)
            self._start = self._scanned = end

    def _pieces(self, end: int) -> Iterator[bytes]:
        """Yields the line up to that offset: whole, or in pieces that do not split a character."""
        at = self._start
        most = LONG_LINE_BYTES if end - at <= LONG_LINE_BYTES else PIECE_BYTES
        while at < end:
            data = _read(self._path, at, min(most, end - at))
            if not data:
                return  # it was truncated in the meantime
            if at + len(data) < end:
                data = data[: whole_characters(data)]
            yield data
            at += len(data)


def whole_characters(data: bytes) -> int:
    r"""Returns the number of bytes before an incomplete UTF-8 character at the end.

    >>> whole_characters("aé".encode()[:2]), whole_characters(b"\xff\xff")
    (1, 2)
    """
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character
        size = 4 if 0xF0 <= byte < 0xF8 else 3 if 0xE0 <= byte < 0xF0 else 2 if byte < 0xE0 else 1
        cut_off = byte >= 0xC0 and back < min(size, len(data))
        return len(data) - back if cut_off else len(data)
    return len(data)


def _read(path: str, at: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        data = os.pread(fd, size, at)
        while len(data) < size and (more := os.pread(fd, size - len(data), at + len(data))):
            data += more
        return data
    finally:
        os.close(fd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


# -- what there is now --------------------------------------------------------------------------


def read_now(
    replicas: Iterable[ReplicaKey],
    paths: PathsOf,
    attempts: Callable[[ReplicaKey], Sequence[int]],
    tail: int | None = None,
) -> Iterator[LogChunk]:
    """Yields the current content of the files: by replica, attempt and file.

    Args:
        attempts: returns the requested attempts of a replica, in order.
        tail: at least this many of the last lines of each replica, and not many more.
    """
    for replica in replicas:
        wanted = attempts(replica)
        starts = _tail_starts(replica, paths, wanted, tail) if tail is not None else {}
        for attempt in wanted:
            key = LogKey(*replica, attempt)
            for path in paths(replica, attempt):
                if tail is not None and path not in starts:
                    continue
                file = GrowingFile(path, starts.get(path, 0))
                for data in file.new_lines(limit=1 << 62):
                    yield key, None, data
                for data in file.rest():
                    yield key, None, data


def _tail_starts(
    replica: ReplicaKey, paths: PathsOf, attempts: Sequence[int], count: int
) -> dict[str, int]:
    """Returns, by path, the offset of the last lines; files without any are left out."""
    starts: dict[str, int] = {}
    found = 0
    for attempt in reversed(attempts):
        for path in reversed(paths(replica, attempt)):
            if found >= count:
                return starts
            starts[path], lines = _find_tail(path, count - found)
            found += lines
    return starts


def _find_tail(path: str, count: int) -> tuple[int, int]:
    """Returns offset and number of the last lines of a file."""
    size = at = _size(path)
    if size == 0:
        return 0, 0
    found = 0
    while at > 0:
        step = min(READ_BYTES, at)
        data = _read(path, at - step, step)
        at -= step
        end = len(data)
        if at + step == size and data.endswith(b"\n"):
            end -= 1  # that newline ends the last line
        while (end := data.rfind(b"\n", 0, end)) >= 0:
            found += 1
            if found == count:
                return at + end + 1, found
    return 0, found + 1


# -- following ----------------------------------------------------------------------------------


class _Follower:
    """The state of one followed replica."""

    def __init__(self, replica: ReplicaKey, paths: PathsOf, attempt: int) -> None:
        self.replica = replica
        self.pause_s = SHORTEST_PAUSE_S
        self._paths = paths
        self.attempt = attempt
        self._open()

    def _open(self) -> None:
        self._files = [GrowingFile(path) for path in self._paths(self.replica, self.attempt)]

    def new(self) -> Iterator[LogChunk]:
        """Yields the lines completed since the last call."""
        key = LogKey(*self.replica, self.attempt)
        for file in self._files:
            for data in file.new_lines():
                yield key, None, data

    def rest(self) -> Iterator[LogChunk]:
        """Yields the rest of an attempt that has ended."""
        key = LogKey(*self.replica, self.attempt)
        for file in self._files:
            for data in file.new_lines(limit=1 << 62):
                yield key, None, data
            for data in file.rest():
                yield key, None, data

    def next_attempt(self) -> None:
        """Continues with the next attempt."""
        self.attempt += 1
        self.pause_s = SHORTEST_PAUSE_S
        self._open()


def follow(
    replicas: Iterable[ReplicaKey],
    paths: PathsOf,
    detector: EndDetector,
    attempt: int | None = None,
) -> Iterator[LogChunk]:
    """Yields lines as they arrive, until all replicas have ended.

    Each replica is polled at its own rate: a silent one once a second, however much others write.

    Args:
        attempt: only this one; ``None`` for all.
    """
    due = [(0.0, i, _Follower(r, paths, attempt or 0)) for i, r in enumerate(replicas)]
    last_line = time.monotonic()
    while due:
        now = time.monotonic()
        news = detector.look(now - last_line)
        turn = sorted(due, key=lambda entry: entry[1]) if news else _pop_due(due, now)
        if news:
            due.clear()
        for _, i, follower in turn:
            # checked before reading, so that everything written before the end is read
            over = _over(detector, follower)
            quiet = True
            for chunk in follower.rest() if over else follower.new():
                quiet = False
                yield chunk
            if not quiet:
                last_line = time.monotonic()
            if over and (
                attempt is not None or follower.attempt >= detector.latest(follower.replica)
            ):
                continue  # the last attempt
            if over:
                follower.next_attempt()
            follower.pause_s = _next_pause_s(follower, quiet)
            heapq.heappush(due, (time.monotonic() + follower.pause_s, i, follower))
        if due:
            time.sleep(max(0.0, min(due[0][0] - time.monotonic(), LONGEST_PAUSE_S)))


def _over(detector: EndDetector, follower: _Follower) -> bool:
    """Returns True if the attempt being read writes nothing more."""
    replica = follower.replica
    return detector.latest(replica) > follower.attempt or detector.ended(replica)


def _next_pause_s(follower: _Follower, quiet: bool) -> float:
    return min(1.5 * follower.pause_s, LONGEST_PAUSE_S) if quiet else SHORTEST_PAUSE_S


def _pop_due(
    due: "list[tuple[float, int, _Follower]]", now: float
) -> "list[tuple[float, int, _Follower]]":
    found = []
    while due and due[0][0] <= now:
        found.append(heapq.heappop(due))
    return found
