"""Follows streams of CloudWatch, with one call a second at most, however many there are."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from torchx._aws.errors import Throttled
from torchx.schedulers._core.log_query import LogChunk, LogKey

from .log_pages import PAGE_EVENTS, LogPlan, LogReader, Look, chunk_of, chunks_of

CALL_EVERY_S = 1.0
"""Seconds between two calls while following, whatever the number of streams."""
IDLE_CALL_EVERY_S = 5.0
"""Seconds between two calls when there was no output for long."""
THROTTLED_CALL_EVERY_S = 30.0
LOOK_EVERY_S = 5.0
"""Seconds between two queries of the scheduler for streams and the end of the job."""
LOOK_FOR_NEW_EVERY_S = 2.0
"""Seconds between two such queries while a stream is missing."""
PATIENCE_S = 5.0
"""Seconds for which the first lines wait until all replicas have streams."""
SETTLE_S = 5.0
"""Seconds without output after the end of a job after which the log is complete."""
LONG_ENDED_S = 60.0
"""Seconds after the end of a job after which reading stops."""
OVERLAP_MS = 20_000
"""Seconds of the past that are requested again: events of several streams arrive late."""
LAST_OVERLAP_MS = 120_000
"""Seconds of the past requested again after the end of the job."""


class _Pace:
    """Paces calls: slower while there is no output, and when AWS throttles them."""

    def __init__(self) -> None:
        self._every_s = CALL_EVERY_S
        self._due = 0.0

    def wait(self) -> None:
        """Waits until the next call is due."""
        now = time.monotonic()
        if now < self._due:
            time.sleep(self._due - now)
        self._due = time.monotonic() + self._every_s

    def charge(self, calls: int) -> None:
        """Accounts for calls made without waiting."""
        self._due += max(calls, 0) * CALL_EVERY_S

    def busy(self) -> None:
        """Reports that there was output."""
        self._every_s = CALL_EVERY_S

    def hurry(self) -> None:
        """Reports that there is more output already."""
        self._due = 0.0

    def idle(self) -> None:
        """Reports that there was no output."""
        self._every_s = max(min(1.2 * self._every_s, IDLE_CALL_EVERY_S), self._every_s)

    def throttled(self) -> None:
        """Reports that AWS throttles calls."""
        self._every_s = min(2 * self._every_s, THROTTLED_CALL_EVERY_S)


class _Follower(Protocol):
    """Reads from where the last call ended."""

    def read_on(self, plan: LogPlan) -> tuple[list[LogChunk], bool]:
        """Returns new lines, and whether there are more already; makes one call."""

    def misses_streams(self, plan: LogPlan) -> bool:
        """Returns True if lines arrived from a stream that is not in the plan."""


def follow(reader: LogReader, look: Look) -> Iterator[list[LogChunk]]:
    """Yields new lines as they arrive, until the job has ended and output has stopped."""
    pace = _Pace()
    watch = _Watch(look, pace)
    follower: _Follower = _OneByOne(reader)
    if len(reader.replicas) > 1:
        follower = _Together(reader)
        watch.await_streams()
    while True:
        try:
            pace.wait()
            chunks, more = follower.read_on(watch.plan)
            if chunks:
                watch.note_news()
                yield chunks
            elif not more:
                pace.idle()
                if watch.all_has_come():
                    return
            if more:
                pace.hurry()
            else:
                watch.look_if_due(follower)
        except Throttled:
            pace.throttled()


class _Watch:
    """The current plan, and the time of the last output."""

    def __init__(self, look: Look, pace: _Pace) -> None:
        self._look = look
        self._pace = pace
        self.plan = look()
        self._looked = self._news = time.monotonic()

    def await_streams(self) -> None:
        """Waits until all replicas have a stream, but not long after the first one has: lines of
        later streams are yielded late.
        """
        first: float | None = None
        while not (self.plan.complete or self.plan.ended):
            if self.plan.streams:
                first = first or time.monotonic()
                if time.monotonic() - first > PATIENCE_S:
                    return
            self._pace.wait()
            self._look_again()

    def note_news(self) -> None:
        """Records that lines have arrived."""
        self._news = time.monotonic()
        self._pace.busy()

    def all_has_come(self) -> bool:
        """Returns True if the job has ended, and output has stopped since."""
        if not self.plan.ended:
            return False
        ended_ms = self.plan.ended_ms
        if ended_ms is not None and time.time() - ended_ms / 1000 > LONG_ENDED_S:
            return True
        return time.monotonic() - max(self._news, self._looked) >= SETTLE_S

    def look_if_due(self, follower: _Follower) -> None:
        """Queries the scheduler again if it is due, sooner if a stream is missing."""
        plan = self.plan
        missing = not plan.complete or not plan.streams or follower.misses_streams(plan)
        every_s = LOOK_FOR_NEW_EVERY_S if missing else LOOK_EVERY_S
        if plan.ended or time.monotonic() - self._looked < every_s:
            return
        self._pace.wait()
        self._look_again()

    def _look_again(self) -> None:
        self.plan = self._look()
        self._pace.charge(self.plan.calls - 1)
        self._looked = time.monotonic()
        if self.plan.ended:
            self._pace.busy()


class _OneByOne:
    """Follows the streams of one replica, one attempt after the other."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._at = 0
        self._token = ""
        self._quiet_since: float | None = None

    def misses_streams(self, plan: LogPlan) -> bool:
        return self._at >= len(self._reader.wanted(plan))

    def read_on(self, plan: LogPlan) -> tuple[list[LogChunk], bool]:
        streams = self._reader.wanted(plan)
        if self._at >= len(streams):
            return [], False
        stream = streams[self._at]
        events, token = self._reader.page(stream, self._token)
        further = bool(token) and token != self._token
        self._token = token or self._token
        if events:
            self._quiet_since = None
            # a page that is not full was the last one for now
            return [*chunks_of(stream.key, events)], _is_full(events)
        if not further and self._at + 1 < len(streams) and self._settled():
            self._at, self._token, self._quiet_since = self._at + 1, "", None
            return [], True
        return [], False

    def _settled(self) -> bool:
        """Returns True if output of an ended attempt has stopped."""
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= SETTLE_S


def _is_full(events: Sequence[Any]) -> bool:
    """Returns True if a page is near AWS's limits: 10,000 events, or 1 MB."""
    if len(events) >= PAGE_EVENTS:
        return True
    return sum(len(str(event.get("message", ""))) + 26 for event in events) > 500_000


class _Together:
    """Follows the streams of many replicas with one call for all."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._given: dict[str, int] = {}
        """Ids of events that were yielded and may be returned again, with their times."""
        self._held: dict[str, list[Any]] = {}
        """Events of streams that are not in the plan yet."""
        self._latest_ms: int | None = None
        self._since_ms = reader.since_ms
        self._token = ""
        self._plan: LogPlan | None = None

    def misses_streams(self, plan: LogPlan) -> bool:
        return bool(self._held)

    def read_on(self, plan: LogPlan) -> tuple[list[LogChunk], bool]:
        streams = self._reader.wanted(plan)
        keys = {stream.name: stream.key for stream in streams}
        found = self._known_now(plan, keys)
        if not streams and not self._reader.place.prefix:
            return found, False
        if not self._token:
            self._begin_sweep(plan)
        events, self._token = self._reader.filtered(streams, self._since_ms, self._token)
        for event in events:
            if not self._is_new(event):
                continue
            name = str(event.get("logStreamName"))
            if name in keys:
                found.append(chunk_of(keys[name], event))
            else:
                self._held.setdefault(name, []).append(event)
        return found, bool(self._token)

    def _known_now(self, plan: LogPlan, keys: Mapping[str, LogKey]) -> list[LogChunk]:
        """Returns lines that arrived before their stream was known; may drop others."""
        if plan is self._plan or not self._held:
            self._plan = plan
            return []
        self._plan = plan
        found: list[LogChunk] = []
        for name in [name for name in self._held if name in keys]:
            found += chunks_of(keys[name], self._held.pop(name))
        if plan.complete:
            self._held.clear()
        return found

    def _begin_sweep(self, plan: LogPlan) -> None:
        """Sets the time from which events are requested, on all pages."""
        if self._latest_ms is None:
            return
        overlap_ms = LAST_OVERLAP_MS if plan.ended else OVERLAP_MS
        self._since_ms = max(self._latest_ms - overlap_ms, 0)
        if self._reader.since_ms is not None:
            self._since_ms = max(self._since_ms, self._reader.since_ms)
        oldest_ms = self._latest_ms - LAST_OVERLAP_MS
        self._given = {key: ms for key, ms in self._given.items() if ms >= oldest_ms}

    def _is_new(self, event: Any) -> bool:
        written_ms = int(event.get("timestamp") or 0)
        self._latest_ms = max(self._latest_ms or 0, written_ms)
        event_id = str(event.get("eventId"))
        if event_id in self._given:
            return False
        self._given[event_id] = written_ms
        return True
