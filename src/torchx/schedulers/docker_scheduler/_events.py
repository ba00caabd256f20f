"""Waits for events of containers, without missing any between two waits."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx._docker import in_parallel, translate_errors

from ._times import as_seconds

if TYPE_CHECKING:
    from ._client import Daemon

EVENT_LAG_NS = 2_000_000_000
"""Seconds by which the daemon may report an event, or show its effect, late."""
_EVENTS = ["start", "die", "destroy", "pause", "unpause"]

Event = tuple[int, str, str]
"""Time in nanoseconds by the daemon's clock, container, event."""


class EventCursor:
    """The position up to which the events of an app are known.

    Args:
        since_ns: start time, by our clock.
    """

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.handled: set[Event] = set()

    def move(self, events: Sequence[Event], skew_ns: int) -> None:
        """Moves the cursor past events. Others of nearly the same time may still arrive."""
        if events:
            self.handled.update(events)
            latest_ns = max(event[0] for event in events)
            self.since_ns = max(self.since_ns, latest_ns - skew_ns - EVENT_LAG_NS)
            oldest_ns = self.since_ns + skew_ns
            self.handled = {event for event in self.handled if event[0] >= oldest_ns}


def wait_for_event(
    daemon: "Daemon", filters: Mapping[str, str], cursor: EventCursor, timeout_s: float
) -> None:
    """Waits for an event after the cursor, and moves the cursor.

    Args:
        filters: filters of containers, in Docker's syntax.
        timeout_s: seconds after which it returns anyway.
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
    """Returns events in a range of the daemon's time, which may extend into the future.

    Args:
        first: only the first one, as soon as it occurs.
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
