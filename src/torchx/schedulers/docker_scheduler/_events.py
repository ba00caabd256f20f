"""Waits for what happens to containers, without missing anything between two waits."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx._docker import in_parallel, translate_errors

from ._times import as_seconds

if TYPE_CHECKING:
    from ._client import Daemon

EVENT_LAG_NS = 2_000_000_000
"""How late the daemon may report an event, or show its effect in a list."""
_EVENTS = ["start", "die", "destroy", "pause", "unpause"]

Event = tuple[int, str, str]
"""Time in nanoseconds by the daemon's clock, container, what happened to it."""


class EventCursor:
    """How far the events of an app are known.

    Args:
        since_ns: time to begin at, by our clock.
    """

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.handled: set[Event] = set()

    def move(self, events: Sequence[Event], skew_ns: int) -> None:
        """Puts events behind the cursor. Others of nearly the same time may still come."""
        if events:
            self.handled.update(events)
            latest_ns = max(event[0] for event in events)
            self.since_ns = max(self.since_ns, latest_ns - skew_ns - EVENT_LAG_NS)
            oldest_ns = self.since_ns + skew_ns
            self.handled = {event for event in self.handled if event[0] >= oldest_ns}


def wait_for_event(
    daemon: "Daemon", filters: Mapping[str, str], cursor: EventCursor, timeout_s: float
) -> None:
    """Returns when something happened to containers behind the cursor, and moves that.

    Args:
        filters: which containers, in Docker's words.
        timeout_s: at the latest after this time.
    """
    skew_ns = daemon.clock_skew_ns()
    since_ns = cursor.since_ns + skew_ns
    now_ns = time.time_ns() + skew_ns
    until_ns = now_ns + int(timeout_s * 1e9)
    with translate_errors("report events"):
        found = _events(daemon.api, filters, (since_ns, now_ns), cursor, first=False)
        if not found and until_ns > now_ns:
            found = _events(daemon.api, filters, (since_ns, until_ns), cursor, first=True)
    # the daemon reports an end before its list does, and holds the container until then
    in_parallel(daemon.inspect, [*dict.fromkeys(container_id for _, container_id, _ in found)])
    cursor.move(found, skew_ns)


def _events(
    api: Any, filters: Mapping[str, str], between: tuple[int, int], cursor: EventCursor, first: bool
) -> list[Event]:
    """Events in a range of the daemon's time, which may reach into the future.

    Args:
        first: only the first one, as soon as it is there.
    """
    since_ns, until_ns = between
    events = api.events(
        since=as_seconds(since_ns),
        until=as_seconds(max(until_ns, since_ns)),
        filters={"type": "container", "event": _EVENTS, **filters},
        decode=True,
    )
    found = []
    try:
        for reported in events:
            actor = reported.get("Actor") or {}
            container_id = str(actor.get("ID") or reported.get("id"))
            event = int(reported.get("timeNano", 0)), container_id, str(reported.get("Action"))
            if event in cursor.handled:
                continue
            found.append(event)
            if first:
                break
    finally:
        events.close()
    return found
