"""Follows several replicas at once, each in a thread, and merges their lines by time."""

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
"""Seconds for which a line of one replica waits for older ones of others."""
_PATIENCE_S = 5.0
"""Seconds for which the first lines wait until all replicas are being read."""
MOST_HELD_LINES = 100_000
"""Above it lines wait for nothing: each takes some 200 bytes of memory besides its text."""


class Follower(Protocol):
    """Reads the output of one replica as it is written."""

    key: LogKey

    def batches(self) -> Iterator[Sequence[TimedLine]]:
        """Yields lines in order, as they arrive; an empty batch once the replica is being read."""

    def close(self) -> None:
        """Ends ``batches``, also from another thread."""


def follow_merged(followers: Sequence[Follower]) -> Iterator[LogChunk]:
    """Yields lines of several replicas as they arrive, by time except for late ones.

    Raises:
        TorchXError: the first error of a follower, after the lines read before it.
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
    """Puts lines on the queue, and at the end the error, if there is one."""
    failure: BaseException | None = None
    try:
        for batch in follower.batches():
            found.put((order, batch, None))
    except TorchXError as err:
        failure = err
    finally:
        found.put((order, None, failure))


def _take(found: "SimpleQueue[Any]", timeout_s: float | None) -> list[Any]:
    """Returns the content of the queue, at least one item; empty after the timeout."""
    from queue import Empty

    try:
        items = [found.get(timeout=timeout_s)]
    except Empty:
        return []
    while not found.empty():
        items.append(found.get_nowait())
    return items


class Merge:
    """Holds lines of several replicas until no earlier ones can arrive."""

    def __init__(self, keys: Sequence[LogKey]) -> None:
        self.live = {*range(len(keys))}
        """The replicas that are still being read, by their order."""
        self.failure: BaseException | None = None
        self._queues = [LineQueue(key) for key in keys]
        self._latest = [-1] * len(keys)
        """Time of the latest line received from each replica."""
        self._silent = {*range(len(keys))}
        self._held = 0
        """Lines that arrived and were not yielded yet."""
        self._began = time.monotonic()
        self._since: float | None = None
        """When all replicas were being read, so that the first lines could be released."""

    def join(self, key: LogKey) -> int:
        """Adds a replica and returns its order; others do not wait for its first line."""
        self._queues.append(LineQueue(key))
        self._latest.append(-1)
        self.live.add(len(self._queues) - 1)
        return len(self._queues) - 1

    def add(self, items: Iterable[Any]) -> None:
        """Processes the items that ``_feed`` put on the queue."""
        arrived = time.monotonic()
        for order, batch, failure in items:
            self._silent.discard(order)
            if batch is None:
                self.live.discard(order)
                self.failure = self.failure or failure
            elif batch:
                self._queues[order].put(batch, arrived)
                self._held += len(batch)
                self._latest[order] = max(self._latest[order], batch[-1][0])

    def holds(self) -> bool:
        """Returns True if lines wait for others."""
        return any(queue.batches for queue in self._queues)

    def ready(self) -> Iterator[LogChunk]:
        """Yields lines that all replicas have passed, or that have waited long enough."""
        now = time.monotonic()
        if self._since is None:
            # what a replica printed before may be older than all the rest
            few = self._held < MOST_HELD_LINES
            if self._silent and few and now - self._began < _PATIENCE_S:
                return
            self._since = now
        if now - self._since < HOLD_S:
            now = 0.0  # nothing has waited since then
        passed_ns = min((self._latest[order] for order in self.live), default=NEVER)
        yield from self._given(passed_ns, now - HOLD_S)

    def rest(self) -> Iterator[LogChunk]:
        """Yields all lines that are still held."""
        yield from self._given(NEVER, 0.0)

    def _given(self, passed_ns: int, before: float) -> Iterator[LogChunk]:
        """Yields lines up to a time, those that arrived before a moment, and what are too many."""
        heap = [(q.head(), order) for order, q in enumerate(self._queues) if q.batches]
        heapq.heapify(heap)
        while heap:
            head_ns, order = heap[0]
            queue = self._queues[order]
            waited = queue.batches[0][0] <= before or self._held > MOST_HELD_LINES
            if head_ns > passed_ns and not waited:
                return
            heapq.heappop(heap)
            limit_ns = limit_of(heap, order)
            lines = queue.lines
            chunk = queue.take(limit_ns if waited else min(limit_ns, passed_ns))
            self._held -= lines - queue.lines
            yield chunk
            if queue.batches:
                heapq.heappush(heap, (queue.head(), order))
