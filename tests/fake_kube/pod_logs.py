"""What containers wrote, with times, and how it is read."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from functools import lru_cache

SECOND_NS = 1_000_000_000


def stamp(time_ns: int) -> bytes:
    """Nine digits after the point, in UTC."""
    seconds, rest = divmod(time_ns, SECOND_NS)
    text = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}Z".encode()


class Log:
    """The output of one instance of a container.

    Args:
        resolution_ns: of the clock; lines of one tick have equal times.
    """

    def __init__(self, resolution_ns: int = 1) -> None:
        self.lines: list[bytes] = []
        self.times_ns: list[int] = []
        self.ended = False
        self._resolution_ns = resolution_ns
        self._partial = b""
        self._unended = False
        self._grown = asyncio.Event()

    def write(self, chunk: bytes) -> None:
        """Output as it comes from the process."""
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        time_ns = time.time_ns() // self._resolution_ns * self._resolution_ns
        self.add(lines, [time_ns] * len(lines))

    def add(self, lines: list[bytes], times_ns: list[int]) -> None:
        """Lines without their ends, and their times."""
        self.lines += lines
        self.times_ns += times_ns
        self._wake()

    def end(self) -> None:
        """Nothing comes any more; what has no newline is a line as well, and is shown without."""
        if self._partial:
            self._unended = True
            self.write(b"\n")
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    def start(self, since_ns: int | None, tail: int | None) -> int:
        """Index of the first line to show; a real kubelet knows whole seconds only."""
        first = 0
        if since_ns is not None:
            first = bisect_left(self.times_ns, since_ns // SECOND_NS * SECOND_NS)
        if tail is not None:
            first = max(first, len(self.lines) - tail)
        return first

    async def read(
        self, first: int, *, follow: bool, timestamps: bool, chunk_lines: int
    ) -> AsyncIterator[bytes]:
        """The lines from an index on, some at a time."""
        at = first
        while True:
            grown = self._grown
            while at < len(self.lines):
                until = min(at + chunk_lines, len(self.lines))
                yield self._text(at, until, timestamps)
                at = until
            if self.ended or not follow:
                return
            await grown.wait()

    def _text(self, start: int, end: int, timestamps: bool) -> bytes:
        lines = self.lines[start:end]
        if timestamps:
            times = map(stamp, self.times_ns[start:end])
            lines = [b"%s %s" % pair for pair in zip(times, lines, strict=True)]
        last = self._unended and end == len(self.lines)
        return b"\n".join(lines) + (b"" if last else b"\n")


class GeneratedLog(Log):
    """A log of many lines, made once for all pods and sent as fast as it is read.

    Its times are a millisecond apart, as of a program that ends now.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.lines, self.times_ns = _generated(count)
        self.ended = True

    def _text(self, start: int, end: int, timestamps: bool) -> bytes:
        if not timestamps:
            return super()._text(start, end, timestamps)
        return _rendered(len(self.lines), start, end)


@lru_cache(maxsize=8)
def _generated(count: int) -> tuple[list[bytes], list[int]]:
    start_ns = time.time_ns() - count * 1_000_000
    lines = [b"line %06d of a program that says much, step after step" % i for i in range(count)]
    return lines, [start_ns + i * 1_000_000 for i in range(count)]


@lru_cache(maxsize=100_000)
def _rendered(count: int, start: int, end: int) -> bytes:
    lines, times_ns = _generated(count)
    pairs = zip(map(stamp, times_ns[start:end]), lines[start:end], strict=True)
    return b"".join(b"%s %s\n" % pair for pair in pairs)
