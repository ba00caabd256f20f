"""Reads the files of one attempt of a replica, by their index of times and offsets."""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from torchx.schedulers._core.unfinished import LONGEST_BYTES
from torchx.schedulers.api import LogChunk, LogKey, LogReport, Stream

from ._supervise.format import (
    CONTINUED,
    INDEX_RECORD_BYTES,
    STREAM_END,
    STREAM_STDERR,
    STREAM_STDOUT,
)

READ_BYTES = 1 << 17
"""Size of the pieces in which logs are read: small enough to stay in the processor's cache."""
_INDEX_BYTES = READ_BYTES // INDEX_RECORD_BYTES * INDEX_RECORD_BYTES
_RECORD = struct.Struct("<QQQQQ")
_FILES = {
    Stream.STDOUT: ("stdout.log", STREAM_STDOUT),
    Stream.STDERR: ("stderr.log", STREAM_STDERR),
    Stream.COMBINED: ("combined.log", None),
}


class Batch(NamedTuple):
    """Whole lines written at one time: a range of bytes in a log file."""

    time_ns: int
    start: int
    end: int
    piece: bool
    """True for a piece of a very long line, except the last one."""


class AttemptReader:
    """Reads the growing index of one attempt, and its lines."""

    def __init__(self, folder: str, key: LogKey, stream: Stream) -> None:
        name, self._kind = _FILES[stream]
        self._path = f"{folder}/{name}"
        self._index_path = f"{folder}/combined.idx"
        self._data_fd = -1
        self._index_fd = -1
        self._index_at = 0
        self._end = 0
        self._lines = 0
        self._ends = {STREAM_STDOUT: 0, STREAM_STDERR: 0}
        """End of the whole lines of each stream in its own file."""
        self.key = key
        self.complete = False
        """True once the end of the log was reached."""

    def batches(self, until_ns: int) -> "list[Batch]":
        """Returns some of the batches written since the last call and up to that time, in order."""
        if self.complete or not self._open():
            return []
        while True:
            data = os.pread(self._index_fd, _INDEX_BYTES, self._index_at)
            found, more = self._parse(data, until_ns)
            if found or not more:
                return found

    def _parse(self, data: bytes, until_ns: int) -> "tuple[list[Batch], bool]":
        """Parses batches from a piece of the index; returns them, and whether more may follow."""
        found: list[Batch] = []
        for offset in range(0, len(data) - INDEX_RECORD_BYTES + 1, INDEX_RECORD_BYTES):
            time_ns, kind, lines, stream_end, combined_end = _RECORD.unpack_from(data, offset)
            if time_ns > until_ns:
                return found, False
            self._index_at += INDEX_RECORD_BYTES
            if kind == STREAM_END:
                self.complete = True
                return found, False
            self._ends[kind] = stream_end
            if self._kind is None:
                found.append(Batch(time_ns, self._end, combined_end, False))
                self._end = combined_end
            elif kind == self._kind:
                found.append(Batch(time_ns, self._end, stream_end, lines == self._lines))
                self._end, self._lines = stream_end, lines
        return found, len(data) == _INDEX_BYTES

    def unfinished(self) -> bytes:
        """Returns the start of an incomplete line; empty if there is none, or two."""
        found = []
        for name, kind in _FILES.values():
            if kind is None or self._kind not in (None, kind) or self.complete:
                continue
            try:
                with open(f"{os.path.dirname(self._path)}/{name}", "rb", 0) as f:
                    found.append(os.pread(f.fileno(), LONGEST_BYTES, self._ends[kind]))
            except OSError:
                continue
        begun = [data for data in found if data]
        return begun[0] if len(begun) == 1 and b"\n" not in begun[0] else b""

    def backwards(self) -> Iterator[Batch]:
        """Yields all batches, last one first."""
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
        """Returns when the last batch in the index was written; 0 if there is none."""
        end = self._index_end() if self._open() else 0
        if end == 0:
            return 0
        last = os.pread(self._index_fd, INDEX_RECORD_BYTES, end - INDEX_RECORD_BYTES)
        return int.from_bytes(last[:8], "little")

    def _index_end(self) -> int:
        return os.fstat(self._index_fd).st_size // INDEX_RECORD_BYTES * INDEX_RECORD_BYTES

    def chunks(self, batches: "list[Batch]", apart: bool) -> Iterator[LogChunk]:
        """Yields the lines of these batches.

        Args:
            apart: yield each batch with its own time; else join neighbours, up to a limit.
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
    """Groups neighbouring batches, up to a limit; a piece of a line ends its group."""
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


def verify_attempt(folder: str, key: LogKey) -> "list[LogReport]":
    """Compares the files of one attempt with their index."""
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
    end_problem = (
        None if ended else "the log has no end mark: it is still written, or was truncated"
    )
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
    """Counts newlines and bytes up to ``end``, and last lines without a newline (0 or 1)."""
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
