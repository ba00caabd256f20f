"""Follows several replicas at once, each in a thread: their lines by time as they come."""

import heapq
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torchx.errors import TorchXError

from .logs import LogChunk, LogKey, joined

if TYPE_CHECKING:
    from queue import SimpleQueue

THREAD_NAME = "torchx-follow"

HOLD_S = 0.1
"""How long a line of one replica waits for older ones of others."""
_PATIENCE_S = 5.0
"""How long the first lines wait until all replicas are being read."""

TimedLine = tuple[int, bytes]
"""Nanoseconds since the epoch by the backend's clock; a whole line."""


class Follower(Protocol):
    """Reads one replica as it prints."""

    key: LogKey

    def batches(self) -> Iterator[Sequence[TimedLine]]:
        """Lines in their order, as they come; an empty batch once the replica is being read."""

    def close(self) -> None:
        """Ends ``batches``, also from another thread."""


def follow_merged(followers: Sequence[Follower]) -> Iterator[LogChunk]:
    """Lines of several replicas as they come, in the order of time but for what comes late.

    Raises:
        TorchXError: the first one of a follower, when all that was read before is given.
    """
    from queue import SimpleQueue

    found: SimpleQueue[Any] = SimpleQueue()
    for order, follower in enumerate(followers):
        threading.Thread(
            target=_feed, args=(order, follower, found), name=THREAD_NAME, daemon=True
        ).start()
    merge = Merge([follower.key for follower in followers])
    try:
        while merge.failure is None and merge.live:
            merge.add(_take(found, HOLD_S if merge.held else None))
            yield from joined(merge.ready())
        yield from joined(merge.rest())
        if merge.failure is not None:
            raise merge.failure
    finally:
        for follower in followers:
            follower.close()


def _feed(order: int, follower: Follower, found: "SimpleQueue[Any]") -> None:
    """Puts lines on the queue, and at the end what went wrong, if anything did."""
    failure: BaseException | None = None
    try:
        for batch in follower.batches():
            found.put((order, batch, None))
    except TorchXError as err:
        failure = err
    finally:
        found.put((order, None, failure))


def _take(found: "SimpleQueue[Any]", timeout_s: float | None) -> list[Any]:
    """All that is on the queue, at least one item; nothing after the time."""
    from queue import Empty

    try:
        items = [found.get(timeout=timeout_s)]
    except Empty:
        return []
    while not found.empty():
        items.append(found.get_nowait())
    return items


class Merge:
    """Holds lines of several replicas until it is known that none before them will come."""

    def __init__(self, keys: Sequence[LogKey] = ()) -> None:
        self.live = {*range(len(keys))}
        """The replicas that are still being read, by their order."""
        self.held: list[tuple[int, int, int, float, bytes]] = []
        """Time, replica, number, arrival and text of lines: the first is the next to give."""
        self.failure: BaseException | None = None
        self._keys = [*keys]
        self._latest = [-1] * len(keys)
        """Time of the latest line of each replica."""
        self._silent = {*range(len(keys))}
        self._number = 0
        self._began = time.monotonic()
        self._since: float | None = None
        """When the first lines could be given: each replica was being read."""

    def join(self, key: LogKey) -> int:
        """The order of one that is read from now on; nobody waits for its first line."""
        self._keys.append(key)
        self._latest.append(-1)
        self.live.add(len(self._keys) - 1)
        return len(self._keys) - 1

    def add(self, items: Iterable[Any]) -> None:
        """Takes what ``_feed`` put on the queue."""
        arrived = time.monotonic()
        for order, batch, failure in items:
            self._silent.discard(order)
            if batch is None:
                self.live.discard(order)
                self.failure = self.failure or failure
                continue
            for written_ns, text in batch:
                self._number += 1
                heapq.heappush(self.held, (written_ns, order, self._number, arrived, text))
            if batch:
                self._latest[order] = max(self._latest[order], batch[-1][0])

    def ready(self) -> Iterator[LogChunk]:
        """Lines that all replicas have passed, or that have waited long enough for them."""
        now = time.monotonic()
        if self._since is None:
            # what a replica printed before may be older than all the rest
            if self._silent and now - self._began < _PATIENCE_S:
                return
            self._since = now
        passed_ns = min((self._latest[order] for order in self.live), default=0)
        held = self.held
        while held and (held[0][0] <= passed_ns or now - max(held[0][3], self._since) >= HOLD_S):
            yield self._next()

    def rest(self) -> Iterator[LogChunk]:
        """All lines that are still held."""
        while self.held:
            yield self._next()

    def _next(self) -> LogChunk:
        written_ns, order, _, _, text = heapq.heappop(self.held)
        return self._keys[order], written_ns, text
