"""Merges lines of several replicas by time, in runs of one replica's lines."""

import heapq
from collections import deque
from collections.abc import Iterator, Sequence

from .logs import LogChunk, LogKey, joined

TimedLine = tuple[int, bytes]
"""Nanoseconds since the epoch; a whole line."""

NEVER = 1 << 63
"""A time that no line has."""


class LineQueue:
    """Lines of one replica that were not returned yet. A late line is returned at once."""

    def __init__(self, key: LogKey) -> None:
        self.key = key
        self.batches: deque[tuple[float, Sequence[TimedLine]]] = deque()
        """When each batch arrived, and its lines."""
        self.lines = 0
        """Number of lines in it."""
        self._at = 0
        """Number of lines of the first batch that were returned."""
        self._latest = 0

    def put(self, lines: Sequence[TimedLine], arrived: float = 0.0) -> None:
        """Appends the next lines."""
        if lines:
            self.batches.append((arrived, lines))
            self.lines += len(lines)

    def head(self) -> int:
        """Returns the time of the next line."""
        return max(self._latest, self.batches[0][1][self._at][0])

    def take(self, until_ns: int) -> LogChunk:
        """Takes the next line, and the following ones of its batch up to a time."""
        lines, begin = self.batches[0][1], self._at
        latest = self.head()
        end = begin + 1
        while end < len(lines):
            written_ns = lines[end][0]
            if written_ns > latest:
                if written_ns > until_ns:
                    break
                latest = written_ns
            end += 1
        self._latest, self._at = latest, end
        self.lines -= end - begin
        if end == len(lines):
            self.batches.popleft()
            self._at = 0
        return as_chunk(self.key, lines[begin:end])


def as_chunk(key: LogKey, lines: Sequence[TimedLine]) -> LogChunk:
    """Joins lines of one replica to one chunk, with the time of the first."""
    return key, lines[0][0], b"".join([text for _, text in lines])


def merge_batches(
    streams: "Sequence[tuple[LogKey, Iterator[Sequence[TimedLine]]]]",
) -> Iterator[LogChunk]:
    """Merges the lines of several replicas; ties go to the first replica."""
    return joined(_merged(streams))


def _merged(
    streams: "Sequence[tuple[LogKey, Iterator[Sequence[TimedLine]]]]",
) -> Iterator[LogChunk]:
    queues = [LineQueue(key) for key, _ in streams]
    heap = [
        (queue.head(), order)
        for order, queue in enumerate(queues)
        if _fill(queue, streams[order][1])
    ]
    heapq.heapify(heap)
    while heap:
        _, order = heapq.heappop(heap)
        queue = queues[order]
        yield queue.take(limit_of(heap, order))
        if _fill(queue, streams[order][1]):
            heapq.heappush(heap, (queue.head(), order))


def limit_of(heap: Sequence[tuple[int, int]], order: int) -> int:
    """Returns the time up to which a replica's lines precede the heads of the others.

    Args:
        heap: times of the next lines of the others, with their order.
    """
    if not heap:
        return NEVER
    next_ns, next_order = heap[0]
    return next_ns if order < next_order else next_ns - 1


def _fill(queue: LineQueue, source: Iterator[Sequence[TimedLine]]) -> bool:
    """Returns True if there is another line; reads on if the queue is empty."""
    while not queue.batches:
        batch = next(source, None)
        if batch is None:
            return False
        queue.put(batch)
    return True
