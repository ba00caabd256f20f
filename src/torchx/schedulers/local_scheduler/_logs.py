"""Reads the logs of local jobs: one replica or many, by time, followed live, and verified."""

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from torchx import _files
from torchx.schedulers.api import LogBlock, LogReport, Stream, split_lines

from ._supervise.journal import INDEX_RECORD_BYTES, STREAM_END, STREAM_STDERR, STREAM_STDOUT
from ._supervise.tree import attempt_dir

READ_BYTES = 1 << 17
"""Size of the pieces in which logs are read: small enough to stay in the processor's cache."""
_RECORD = struct.Struct("<QQQQQ")
_FOREVER_NS = 1 << 64
_FILES = {
    Stream.STDOUT: ("stdout.log", STREAM_STDOUT),
    Stream.STDERR: ("stderr.log", STREAM_STDERR),
    Stream.COMBINED: ("combined.log", None),
}


class Waker(Protocol):
    """What ``_client.Watch`` offers a reader."""

    @property
    def live(self) -> bool: ...
    def wait(self, timeout_s: float | None) -> None: ...
    def close(self) -> None: ...


class Batch:
    """Whole lines that were written at one time: a range of bytes in a log file."""

    __slots__ = ("end", "source", "start", "time_ns")

    def __init__(self, time_ns: int, source: "AttemptReader", start: int, end: int) -> None:
        self.time_ns = time_ns
        self.source = source
        self.start = start
        self.end = end


class AttemptReader:
    """Reads the index of one attempt as it grows, and the lines it speaks of."""

    def __init__(self, folder: str, stream: Stream, role: str, replica: int, attempt: int) -> None:
        name, self._kind = _FILES[stream]
        self._path = os.path.join(folder, name)
        self._index_path = os.path.join(folder, "combined.idx")
        self._data_fd = -1
        self._index_fd = -1
        self._index_at = 0
        self._end = 0
        self.role = role
        self.replica = replica
        self.attempt = attempt
        self.complete = False
        """Whether the end of the log has been seen."""

    def batches(self, before_ns: int) -> "list[Batch]":
        """What was written since the last call and before that time, in order."""
        if self.complete or not self._open():
            return []
        data = os.pread(self._index_fd, READ_BYTES, self._index_at)
        found = []
        for offset in range(0, len(data) - INDEX_RECORD_BYTES + 1, INDEX_RECORD_BYTES):
            time_ns, kind, _, stream_end, combined_end = _RECORD.unpack_from(data, offset)
            if time_ns > before_ns:
                break
            self._index_at += INDEX_RECORD_BYTES
            if kind == STREAM_END:
                self.complete = True
                break
            if self._kind is not None and kind != self._kind:
                continue
            end = combined_end if self._kind is None else stream_end
            found.append(Batch(time_ns, self, self._end, end))
            self._end = end
        return found

    def read(self, start: int, end: int) -> str:
        """The text of that range; undecodable bytes become U+FFFD."""
        return _pread_all(self._data_fd, start, end).decode("utf-8", "replace")

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


def _pread_all(fd: int, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        part = os.pread(fd, min(end - start, READ_BYTES), start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)


class Source:
    """A replica whose attempts are read one after the other."""

    def __init__(
        self, folder: str, role: str, replica: int, stream: Stream, only: int | None
    ) -> None:
        self._folder = folder
        self._role = role
        self._replica = replica
        self._stream = stream
        self._only = only
        self._done: list[AttemptReader] = []
        self._reader = self._open_attempt(only or 0)

    def _open_attempt(self, attempt: int) -> AttemptReader:
        folder = attempt_dir(self._folder, attempt)
        return AttemptReader(folder, self._stream, self._role, self._replica, attempt)

    def batches(self, before_ns: int) -> "list[Batch]":
        """What is new; goes on to the next attempt when one is complete."""
        found: list[Batch] = []
        while True:
            new = self._reader.batches(before_ns)
            found += new
            if new and not self._reader.complete:
                continue  # there may be more than one read takes
            if not self._reader.complete or self._only is not None:
                break
            following = self._reader.attempt + 1
            if not os.path.isdir(attempt_dir(self._folder, following)):
                break
            self._done.append(self._reader)
            self._reader = self._open_attempt(following)
        return found

    def release(self) -> None:
        """Closes the attempts that were read to their end; call it after using their batches."""
        for reader in self._done:
            reader.close()
        self._done.clear()

    @property
    def complete(self) -> bool:
        """Whether the only attempt asked for was read to its end."""
        return self._only is not None and self._reader.complete

    def close(self) -> None:
        """Closes every file."""
        self.release()
        self._reader.close()


def follow(
    sources: "list[Source]",
    watch: "Callable[[], Waker] | None",
    since_ns: int | None,
    until_ns: int | None,
) -> Iterator[LogBlock]:
    """Blocks of whole lines of all sources, in the order in which they were written.

    Args:
        watch: makes what wakes this reader when there is more; ``None`` to stop at what is there.
    """
    waker = watch() if watch else None
    try:
        while True:
            live = waker is not None and waker.live
            started_ns = time.time_ns()
            # what several replicas wrote while they were read waits, so that the order holds
            limit = started_ns if waker is not None and len(sources) > 1 else _FOREVER_NS
            if until_ns is not None:
                limit = min(limit, until_ns)
            batches = [b for source in sources for b in source.batches(limit)]
            if len(sources) > 1:
                batches.sort(key=lambda b: b.time_ns)
            if since_ns is not None:
                batches = [b for b in batches if b.time_ns >= since_ns]
            yield from _blocks(batches)
            for source in sources:
                source.release()
            if batches:
                continue  # reading took time in which more may have come
            if until_ns is not None and started_ns >= until_ns:
                return
            if waker is None or not live or all(s.complete for s in sources):
                return
            left_s = None if until_ns is None else max((until_ns - started_ns) / 1e9, 0.0)
            waker.wait(left_s)
    finally:
        if waker is not None:
            waker.close()
        for source in sources:
            source.close()


def _blocks(batches: "list[Batch]") -> Iterator[LogBlock]:
    """Joins neighbouring batches of one file, up to a bound, and reads them."""
    at = 0
    while at < len(batches):
        first = last = batches[at]
        at += 1
        while (
            at < len(batches)
            and batches[at].source is first.source
            and batches[at].start == last.end
            and batches[at].end - first.start <= READ_BYTES
        ):
            last = batches[at]
            at += 1
        source = first.source
        text = source.read(first.start, last.end)
        if text:
            yield LogBlock(source.role, source.replica, source.attempt, text)


def lines_of(blocks: Iterable[LogBlock]) -> Iterator[str]:
    """The lines of blocks, each with its newline but perhaps the last."""
    held: list[str] = []
    """Pieces of a line that has not ended; joined once, however many they are."""
    attempt = 0
    for block in blocks:
        if held and block.attempt != attempt:
            yield "".join(held)
            held.clear()
        attempt = block.attempt
        lines = split_lines(block.text)
        last = None if lines[-1].endswith("\n") else lines.pop()
        if held and lines:
            lines[0] = "".join(held) + lines[0]
            held.clear()
        yield from lines
        if last is not None:
            held.append(last)
    if held:
        yield "".join(held)


def last_lines(folder: str, count: int) -> "list[str]":
    """The last lines of an attempt's errors, or of all it printed if it wrote no errors."""
    for name in ("stderr.log", "combined.log"):
        lines = _files.last_lines(os.path.join(folder, name), count)
        if lines:
            return lines
    return []


def verify(folder: str, role: str, replica: int, attempt: int) -> "list[LogReport]":
    """Compares the files of one attempt with what their index says was written."""
    try:
        with open(os.path.join(folder, "combined.idx"), "rb") as f:
            index = f.read()
    except OSError as err:
        unreadable = f"the index cannot be read: {err.strerror}"
        return [LogReport(role, replica, attempt, Stream.COMBINED, 0, 0, False, unreadable)]
    totals = {STREAM_STDOUT: (0, 0), STREAM_STDERR: (0, 0)}
    combined_end, ended = 0, False
    for fields in _RECORD.iter_unpack(
        index[: len(index) // INDEX_RECORD_BYTES * INDEX_RECORD_BYTES]
    ):
        _, kind, lines, stream_end, combined_end = fields
        if kind == STREAM_END:
            ended = True
        else:
            totals[kind] = (lines, stream_end)
    end_problem = None if ended else "the log has no end mark: it is still written, or was cut off"
    reports = []
    for stream in (Stream.STDOUT, Stream.STDERR, Stream.COMBINED):
        name, kind = _FILES[stream]
        if kind is None:
            lines, size = sum(n for n, _ in totals.values()), combined_end
        else:
            lines, size = totals[kind]
        found_lines, found_size, unended = _count(os.path.join(folder, name), size)
        problem: str | None = end_problem
        if found_size < size:
            problem = f"{size - found_size} of {size} bytes are missing"
        elif kind is not None and found_lines + unended < lines:
            problem = f"{lines - found_lines - unended} of {lines} lines are missing"
        reports.append(
            LogReport(role, replica, attempt, stream, lines, size, problem is None, problem)
        )
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
