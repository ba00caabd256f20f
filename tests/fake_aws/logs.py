"""CloudWatch Logs: groups, streams and events, as far as reading needs them."""

import bisect
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

from .protocol import AwsFault, Params

_EVER = 1 << 62
PAGE_BYTES = 1_048_576
EVENT_BYTES = 26
"""What an event costs beside its text."""
LINE_BYTES = 256 * 1024 - EVENT_BYTES
"""A longer line becomes several events, as with the log driver ``awslogs``."""


@dataclass(order=True)
class Event:
    """One line."""

    timestamp: int
    number: int
    message: str = field(compare=False)
    stream: str = field(compare=False)
    visible_s: float = field(compare=False, default=0.0)
    """When it can be read, by the monotonic clock."""


class Logs:
    """The service ``logs``. Other services write with ``write``."""

    name = "logs"

    def __init__(self, services: dict[str, Any]) -> None:
        self.groups: dict[str, dict[str, list[Event]]] = {}
        self.page_events = 10_000
        self.lag_s = 0.0
        """How much later than they are written events can be read."""
        self._numbers = itertools.count(1)

    # -- what other services and tests do ---------------------------------------------------

    def open_stream(self, group: str, stream: str) -> None:
        """Makes a stream, and its group if that is not there."""
        self.groups.setdefault(group, {}).setdefault(stream, [])

    def write(
        self,
        group: str,
        stream: str,
        text: str,
        at_ms: int | None = None,
        lag_s: float | None = None,
    ) -> None:
        """Adds a line; an empty one is left out, as the log driver does."""
        self.open_stream(group, stream)
        now_ms = time.time_ns() // 1_000_000
        visible_s = time.monotonic() + (self.lag_s if lag_s is None else lag_s)
        for at in range(0, len(text), LINE_BYTES):
            piece = text[at : at + LINE_BYTES]
            when = now_ms if at_ms is None else at_ms
            event = Event(when, next(self._numbers), piece, stream, visible_s)
            bisect.insort(self.groups[group][stream], event)

    def admin_write(self, body: Params) -> Params:
        """Many lines at once: ``{"group", "stream", "lines": [[time in ms, text], ...]}``."""
        for at_ms, text in body["lines"]:
            self.write(body["group"], body["stream"], text, at_ms, body.get("lag_s"))
        return {}

    def admin_settings(self, body: Params) -> Params:
        """``page_events``, ``lag_s``."""
        for name, value in body.items():
            setattr(self, name, value)
        return {}

    # -- operations -------------------------------------------------------------------------

    def GetLogEvents(self, params: Params) -> Params:
        events = self._readable(self._stream(params), params)
        limit = min(params.get("limit", 10_000), self.page_events)
        direction, seen = self._position(params)
        if direction == "f":
            page = _fitting([e for e in events if e.number > seen], limit)
        else:
            page = _fitting([e for e in events if e.number < seen][::-1], limit)[::-1]
        # a token names an event, and stays the same where there are no more
        first, last = (page[0].number, page[-1].number) if page else (seen, seen)
        return {
            "events": [_told(event) for event in page],
            "nextForwardToken": f"f/{last}",
            "nextBackwardToken": f"b/{first}",
        }

    def FilterLogEvents(self, params: Params) -> Params:
        streams = self._group(params)
        names = params.get("logStreamNames")
        prefix = params.get("logStreamNamePrefix")
        if names is not None and prefix is not None:
            raise AwsFault(
                "InvalidParameterException",
                "logStreamNames and logStreamNamePrefix exclude each other",
            )
        for name in names or ():
            if name not in streams:
                raise _no_stream()
        now = time.monotonic()
        since, until = params.get("startTime", 0), params.get("endTime", _EVER)
        chosen = [
            event
            for name, events in streams.items()
            if (names is None or name in names) and name.startswith(prefix or "")
            for event in events
            if event.visible_s <= now and since <= event.timestamp <= until
        ]
        chosen.sort()
        at = int(params.get("nextToken", "at/0").partition("/")[2])
        limit = min(params.get("limit", 10_000), self.page_events)
        page = _fitting(chosen[at:], limit)
        answer: Params = {
            "events": [
                {**_told(event), "logStreamName": event.stream, "eventId": f"{event.number:056d}"}
                for event in page
            ]
        }
        if at + len(page) < len(chosen):
            answer["nextToken"] = f"at/{at + len(page)}"
        return answer

    def DescribeLogStreams(self, params: Params) -> Params:
        prefix = params.get("logStreamNamePrefix", "")
        names = sorted(name for name in self._group(params) if name.startswith(prefix))
        at = int(params.get("nextToken", "0"))
        limit = params.get("limit", 50)
        answer: Params = {
            "logStreams": [{"logStreamName": name} for name in names[at : at + limit]]
        }
        if at + limit < len(names):
            answer["nextToken"] = str(at + limit)
        return answer

    def _group(self, params: Params) -> dict[str, list[Event]]:
        found = self.groups.get(params.get("logGroupName", ""))
        if found is None:
            raise AwsFault("ResourceNotFoundException", "The specified log group does not exist.")
        return found

    def _stream(self, params: Params) -> list[Event]:
        found = self._group(params).get(params["logStreamName"])
        if found is None:
            raise _no_stream()
        return found

    def _readable(self, events: list[Event], params: Params) -> list[Event]:
        """In the order in which they came, up to the first that cannot be read yet."""
        now = time.monotonic()
        since, until = params.get("startTime", 0), params.get("endTime", _EVER)
        came = sorted(events, key=lambda event: event.number)
        readable = itertools.takewhile(lambda event: event.visible_s <= now, came)
        return [event for event in readable if since <= event.timestamp < until]

    def _position(self, params: Params) -> tuple[str, int]:
        token = params.get("nextToken")
        if token is None:
            return ("f", 0) if params.get("startFromHead") else ("b", _EVER)
        direction, _, number = token.partition("/")
        return direction, int(number)


def _fitting(events: list[Event], limit: int) -> list[Event]:
    size = 0
    for count, event in enumerate(events[:limit]):
        size += len(event.message.encode()) + EVENT_BYTES
        if size > PAGE_BYTES and count:
            return events[:count]
    return events[:limit]


def _told(event: Event) -> Params:
    return {
        "timestamp": event.timestamp,
        "message": event.message,
        "ingestionTime": event.timestamp + 1,
    }


def _no_stream() -> AwsFault:
    return AwsFault("ResourceNotFoundException", "The specified log stream does not exist.")
