"""Reads a replica's log from where the last read ended, holding no thread in between."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchx.schedulers._core import logs
from torchx.schedulers.api import LogQuery, ReplicaKey, Scheduler, Stream

if TYPE_CHECKING:
    import re

    from torchx.schedulers.api import AppSnapshot


class LogCursor:
    """The position in the log of one replica, from which new lines are read.

    It is kept by the times of lines if the scheduler has them, else by their number.
    """

    def __init__(
        self,
        scheduler: "Scheduler[Any]",
        key: ReplicaKey,
        stream: Stream,
        times: "tuple[int | None, int | None]",
        pattern: "re.Pattern[str] | None",
    ) -> None:
        self._scheduler = scheduler
        self._key = key
        self._stream = stream
        self._times = times
        self._pattern = pattern
        self._last_ns = -1
        self._at_last = 0
        """Lines of that time that were already returned."""
        self._given = 0
        self._rest = b""
        """The start of a line that is still being written."""

    def read(self, snapshot: "AppSnapshot", over: bool) -> list[str]:
        """Returns new whole lines, and the rest of the last one when the app has ended."""
        data = self._rest + b"".join(self._new_bytes(snapshot))
        end = len(data) if over else data.rfind(b"\n") + 1
        self._rest = data[end:]
        lines = logs.split_lines(data[:end].decode("utf-8", "replace"))
        return [line for line in lines if self._pattern is None or self._pattern.search(line)]

    def _new_bytes(self, snapshot: "AppSnapshot") -> Iterator[bytes]:
        timed = self._scheduler.features.log_time_range
        since_ns, until_ns = self._times
        if timed and self._last_ns >= 0:
            since_ns = self._last_ns
        query = LogQuery(self._stream, since_ns, until_ns)
        chunks = logs.in_range(self._scheduler.read_logs(snapshot, [self._key], query), query)
        if not timed:
            pieces = (data for _, _, data in chunks)
            text = b"".join(pieces)
            new, self._given = text[self._given :], len(text)
            yield new
            return
        yield from self._timed(chunks)

    def _timed(self, chunks: "Iterator[Any]") -> Iterator[bytes]:
        for time_ns, group in itertools.groupby(chunks, key=lambda chunk: chunk[1]):
            data = b"".join(chunk[2] for chunk in group)
            known_ns = -1 if time_ns is None else time_ns
            if known_ns < self._last_ns:
                continue
            if known_ns > self._last_ns:
                self._last_ns, self._at_last = known_ns, 0
            new, self._at_last = data[self._at_last :], max(len(data), self._at_last)
            yield new
