"""Parses lines of a log with their times, and resumes an interrupted log. No I/O.

The server can start a log only at a whole second, so repeated lines must be distinguished from new
ones. Times are not enough: several lines may have the same, and standard output and error are not
in strict order. So hashes of the lines of the last two seconds are kept, and each line is skipped
as often as it was delivered.
"""

import re
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import lru_cache

_SECOND_NS = 1_000_000_000
_SECONDS = 19
"""Characters of a time up to its second, as in ``2026-01-02T03:04:05``."""
_USUAL = 30
"""Characters of a whole time in UTC with nine digits after the point, as nodes write it."""
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_OVERLAP_S = 1
"""Seconds before the last line that are requested again, for lines out of order."""


def parse_line(line: bytes) -> tuple[int | None, bytes]:
    """Splits ``2026-01-02T03:04:05.123456789Z text`` into nanoseconds since 1970 and the text.

    The time is ``None`` if the line does not begin with one, like some messages of the node.
    """
    stamp, _, text = line.partition(b" ")
    time_ns = _time_ns(stamp)
    return (None, line) if time_ns is None else (time_ns, text)


def _time_ns(stamp: bytes) -> int | None:
    if len(stamp) == _USUAL and stamp.endswith(b"Z") and stamp[_SECONDS + 1 : -1].isdigit():
        seconds = _epoch_s(stamp[:_SECONDS], b"+00:00")
        return None if seconds is None else seconds * _SECOND_NS + int(stamp[_SECONDS + 1 : -1])
    found = _STAMP.fullmatch(stamp)
    if found is None:
        return None
    whole, fraction, zone = found.groups(b"")
    seconds = _epoch_s(whole, b"+00:00" if zone == b"Z" else zone)
    return None if seconds is None else seconds * _SECOND_NS + int(fraction[:9].ljust(9, b"0"))


@lru_cache(maxsize=4096)
def _epoch_s(text: bytes, zone: bytes) -> int | None:
    try:
        return int(datetime.fromisoformat((text + zone).decode("ascii")).timestamp())
    except (ValueError, UnicodeDecodeError):
        return None


def since_time(time_ns: int) -> str:
    """Formats a time for the server: whole seconds, rounded down."""
    moment = datetime.fromtimestamp(time_ns // _SECOND_NS, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class LogPosition:
    """Converts chunks of a log to lines, each once, however often the log is reopened.

    Args:
        since_ns: time at which to start; ``None`` for the beginning.
        tail: start with that many of the last lines.
    """

    def __init__(self, since_ns: int | None = None, tail: int | None = None) -> None:
        self._since_ns = since_ns
        self._tail = tail
        self._partial = b""
        self._reopened = False
        self._recent: deque[tuple[int, array[int]]] = deque()
        self._repeated: Counter[int] | None = None
        self._before_tail = False
        self.last: bytes | None = None
        """The last line that was delivered."""

    def query(self) -> dict[str, str]:
        """Returns the parameters for the start of the log; call it each time it is opened."""
        self._reopened = True
        if self.last is None:
            query = {} if self._tail is None else {"tailLines": str(self._tail)}
            return query | ({} if self._since_ns is None else {"sinceTime": self._since()})
        self._repeated = Counter()
        for _, hashes in self._recent:
            self._repeated.update(hashes)
        self._before_tail = self._tail is not None
        return {"sinceTime": self._since()} if self._recent or self._since_ns is not None else {}

    def _since(self) -> str:
        seconds = self._recent[-1][0] - _OVERLAP_S if self._recent else 0
        return since_time(max(seconds * _SECOND_NS, self._since_ns or 0))

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the new lines completed by the chunk, without line ends."""
        if self._reopened:  # an incomplete line is sent again
            self._reopened, self._partial = False, b""
        lines = (self._partial + chunk).split(b"\n")
        self._partial = lines.pop()
        if self._repeated is not None:
            lines = self._new(lines)
        if lines:
            self._remember(lines)
        return lines

    def finish(self) -> list[bytes]:
        """Returns the last line, if it has no line end. Call it when the log is complete."""
        if not self._partial:
            return []
        self._reopened = False
        return self.feed(b"\n")

    def lacks(self, line: bytes) -> bool:
        """Returns True if the last line of a log is missing."""
        if not line or line in (self.last, self._partial):
            return False
        if self.last is None and self._tail == 0:
            return False
        time_ns = parse_line(line)[0]
        before = time_ns is not None and time_ns < (self._since_ns or 0) // _SECOND_NS * _SECOND_NS
        return not before

    def _new(self, lines: Sequence[bytes]) -> list[bytes]:
        """Returns the lines that were not delivered before the log was reopened."""
        repeated = self._repeated
        assert repeated is not None  # only called after an opening
        new = []
        for line in lines:
            key = hash(line)
            if repeated.get(key):
                repeated[key] -= 1
                self._before_tail = False
            elif not self._before_tail or self._is_later(line):
                self._before_tail = False
                new.append(line)
        if new and self._is_far_later(new[-1]):
            self._repeated = None
        return new

    def _is_later(self, line: bytes) -> bool:
        assert self.last is not None  # otherwise there is no tail
        time_ns, last_ns = parse_line(line)[0], parse_line(self.last)[0]
        return time_ns is not None and last_ns is not None and time_ns > last_ns

    def _is_far_later(self, line: bytes) -> bool:
        """Returns True if the line is so late that no more lines are repeated."""
        time_ns = parse_line(line)[0]
        last_s = self._recent[-1][0] if self._recent else 0
        return time_ns is not None and time_ns // _SECOND_NS > last_s + _OVERLAP_S

    def _remember(self, lines: Sequence[bytes]) -> None:
        self.last = lines[-1]
        recent = self._recent
        second = self._latest_second(lines)
        if not recent or second > recent[-1][0]:
            recent.append((second, array("q")))
            while recent[0][0] < second - _OVERLAP_S:
                recent.popleft()
        recent[-1][1].extend(map(hash, lines))

    def _latest_second(self, lines: Sequence[bytes]) -> int:
        """Returns the latest second of lines in any order; times sort like their text."""
        time_ns = parse_line(max(lines))[0]
        if time_ns is None:  # a line without a time is among them
            times_ns = (parse_line(line)[0] for line in lines)
            known_ns = [time_ns for time_ns in times_ns if time_ns is not None]
            time_ns = max(known_ns, default=self._recent[-1][0] * _SECOND_NS if self._recent else 0)
        return time_ns // _SECOND_NS
