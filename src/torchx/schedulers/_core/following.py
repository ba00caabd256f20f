"""Follows several replicas at once, each in a thread: their lines by time as they come."""

import heapq
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torchx.errors import TorchXError

from .logs import LogChunk, LogKey, joined
from .merging import NEVER, LineQueue, TimedLine, limit_of

if TYPE_CHECKING:
    from queue import SimpleQueue

THREAD_NAME = "torchx-follow"

HOLD_S = 0.1
"""How long a line of one replica waits for older ones of others."""
_PATIENCE_S = 5.0
"""How long the first lines wait until all replicas are being read."""


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
            merge.add(_take(found, HOLD_S if merge.holds() else None))
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

    def __init__(self, keys: Sequence[LogKey]) -> None:
        self.live = {*range(len(keys))}
        """The replicas that are still being read, by their order."""
        self.failure: BaseException | None = None
        self._queues = [LineQueue(key) for key in keys]
        self._latest = [-1] * len(keys)
        """Time of the latest line of each replica that has come."""
        self._silent = {*range(len(keys))}
        self._began = time.monotonic()
        self._since: float | None = None
        """When the first lines could be given: each replica was being read."""

    def join(self, key: LogKey) -> int:
        """The order of one that is read from now on; nobody waits for its first line."""
        self._queues.append(LineQueue(key))
        self._latest.append(-1)
        self.live.add(len(self._queues) - 1)
        return len(self._queues) - 1

    def add(self, items: Iterable[Any]) -> None:
        """Takes what ``_feed`` put on the queue."""
        arrived = time.monotonic()
        for order, batch, failure in items:
            self._silent.discard(order)
            if batch is None:
                self.live.discard(order)
                self.failure = self.failure or failure
            elif batch:
                self._queues[order].put(batch, arrived)
                self._latest[order] = max(self._latest[order], batch[-1][0])

    def holds(self) -> bool:
        """Whether lines wait for others."""
        return any(queue.batches for queue in self._queues)

    def ready(self) -> Iterator[LogChunk]:
        """Lines that all replicas have passed, or that have waited long enough for them."""
        now = time.monotonic()
        if self._since is None:
            # what a replica printed before may be older than all the rest
            if self._silent and now - self._began < _PATIENCE_S:
                return
            self._since = now
        if now - self._since < HOLD_S:
            now = 0.0  # nothing has waited since then
        passed_ns = min((self._latest[order] for order in self.live), default=NEVER)
        yield from self._given(passed_ns, now - HOLD_S)

    def rest(self) -> Iterator[LogChunk]:
        """All lines that are still held."""
        yield from self._given(NEVER, 0.0)

    def _given(self, passed_ns: int, before: float) -> Iterator[LogChunk]:
        """Lines up to a time, and those that arrived before a moment."""
        heap = [(q.head(), order) for order, q in enumerate(self._queues) if q.batches]
        heapq.heapify(heap)
        while heap:
            head_ns, order = heap[0]
            queue = self._queues[order]
            waited = queue.batches[0][0] <= before
            if head_ns > passed_ns and not waited:
                return
            heapq.heappop(heap)
            limit_ns = limit_of(heap, order)
            yield queue.take(limit_ns if waited else min(limit_ns, passed_ns))
            if queue.batches:
                heapq.heappush(heap, (queue.head(), order))
