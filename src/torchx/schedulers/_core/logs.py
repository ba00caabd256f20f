"""Log lines of several replicas: merged by time, filtered, limited to the last ones."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from torchx._retry import passes
from torchx._startup.dataclass import replace
from torchx.errors import BackendUnavailable, InvalidInput

from .log_query import LogChunk as LogChunk
from .log_query import LogKey as LogKey
from .log_query import LogQuery as LogQuery
from .responses import LogBlock
from .snapshot import ReplicaKey

if TYPE_CHECKING:
    import re
    from datetime import datetime

BLOCK_BYTES = 1 << 17
"""Neighbouring chunks of one replica are joined up to this size."""
AWAY_S = 150.0
"""Seconds that a backend may be away while its logs are followed."""
_LONGEST_PAUSE_S = 5.0


def to_ns(moment: "datetime | float | None") -> int | None:
    """Converts to nanoseconds since the epoch; naive times are local, numbers are seconds."""
    if moment is None:
        return None
    if isinstance(moment, (int, float)):
        return int(moment * 1_000_000_000)
    seconds = int(moment.replace(microsecond=0).timestamp())
    return seconds * 1_000_000_000 + moment.microsecond * 1000


def merge_by_time(streams: "Sequence[Iterator[LogChunk]]") -> Iterator[LogChunk]:
    """Merges chunks of several replicas by time; ties go to the first stream.

    A chunk without a time follows the one before it. Streams without any times follow one after the
    other.
    """
    import heapq

    if len(streams) == 1:
        yield from streams[0]
        return
    ranked = [_ranked(i, stream) for i, stream in enumerate(streams)]
    for _, _, chunk in heapq.merge(*ranked, key=lambda item: item[:2]):
        yield chunk


def _ranked(order: int, stream: "Iterator[LogChunk]") -> "Iterator[tuple[int, int, LogChunk]]":
    latest = 0
    for chunk in stream:
        if chunk[1] is not None and chunk[1] > latest:
            latest = chunk[1]
        yield latest, order, chunk


def in_range(chunks: Iterable[LogChunk], query: LogQuery) -> Iterator[LogChunk]:
    """Yields the chunks between ``since`` and ``until``, and those without a time."""
    since, until = query.since_ns or 0, query.until_ns
    for chunk in chunks:
        written = chunk[1]
        if written is None or (written >= since and (until is None or written <= until)):
            yield chunk


def to_blocks(chunks: Iterable[LogChunk]) -> Iterator[LogBlock]:
    """Decodes chunks to blocks, each of consecutive output of one attempt."""
    for key, _, data in chunks:
        if data:
            yield LogBlock(key.role, key.replica, key.attempt, data.decode("utf-8", "replace"))


def joined(chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
    """Joins neighbouring chunks of one attempt, up to a limit. Holds chunks back to join them."""
    current: LogKey | None = None
    parts: list[bytes] = []
    size = 0
    first: int | None = None
    for key, written, data in chunks:
        if current is not None and (key != current or size >= BLOCK_BYTES):
            yield current, first, b"".join(parts)
            parts, size = [], 0
        if not parts:
            first = written
        current = key
        parts.append(data)
        size += len(data)
    if current is not None:
        yield current, first, b"".join(parts)


def split_lines(text: str) -> list[str]:
    r"""Splits text after each ``\n``; ``\r`` and other line breaks are kept.

    >>> split_lines("p\nq")
    ['p\n', 'q']
    """
    if text.isascii() and not any(c in text for c in "\r\v\f\x1c\x1d\x1e"):
        return text.splitlines(keepends=True)  # twice as fast, and the same for such text
    *lines, last = text.split("\n")
    whole = [f"{line}\n" for line in lines]
    return [*whole, last] if last else whole


def split_lines_iterator(chunks: Iterable[str]) -> Iterable[str]:
    """Lines of each chunk; a line that spans two chunks comes in two pieces."""
    for chunk in chunks:
        yield from split_lines(chunk)


def lines_of(blocks: Iterable[LogBlock]) -> Iterator[str]:
    """Yields the lines of blocks of one replica; only the last may lack its newline."""
    held: list[str] = []
    """Pieces of an unfinished line; joined once, however many they are."""
    attempt = 0
    for block in blocks:
        if held and block.attempt != attempt:
            yield "".join(held)
            held.clear()
        attempt = block.attempt
        lines = split_lines(block.text)
        last = None if lines[-1].endswith("\n") else lines.pop()
        if held and lines:
            lines[0] = "".join(held) + lines[0]
            held.clear()
        yield from lines
        if last is not None:
            held.append(last)
    if held:
        yield "".join(held)


def compiled(regex: str) -> "re.Pattern[str]":
    """Compiles a regular expression.

    Raises:
        InvalidInput: for a text that is no regular expression.
    """
    import re

    try:
        return re.compile(regex)
    except re.error as err:
        msg = f"`{regex}` is not a regular expression: {err}"
        raise InvalidInput(msg) from None


def filter_regex(regex: str, data: Iterable[str]) -> Iterable[str]:
    """Items in which the expression is found, lazily.

    >>> list(filter_regex("b+", ["abb", "a"]))
    ['abb']
    """
    import re

    found = re.compile(regex).search
    return (item for item in data if found(item))


def matching(blocks: Iterable[LogBlock], pattern: "re.Pattern[str]") -> Iterator[LogBlock]:
    """Yields the blocks with only the lines that match.

    A line in pieces is yielded from the matching piece on.
    """
    search = pattern.search
    goes_on = False
    """True if the previous block ended within a line that was yielded."""
    for block in blocks:
        lines = split_lines(block.text)
        last = lines[-1]
        first = [lines.pop(0)] if goes_on and lines else []
        found = [*first, *(line for line in lines if search(line.rstrip("\n")))]
        goes_on = bool(found) and found[-1] is last and not last.endswith("\n")
        if found:
            yield LogBlock(block.role, block.replica, block.attempt, "".join(found))


def last_lines(blocks: Iterable[LogBlock], count: int) -> Iterator[LogBlock]:
    """Yields the last lines of each replica, in order."""
    kept: dict[ReplicaKey, deque[tuple[int, LogBlock]]] = {}
    number = 0
    for block in blocks:
        last = kept.setdefault((block.role, block.replica), deque(maxlen=count))
        for line in split_lines(block.text):
            number += 1
            last.append((number, LogBlock(block.role, block.replica, block.attempt, line)))
    numbered = [entry for last in kept.values() for entry in last]
    numbered.sort(key=lambda entry: entry[0])
    yield from (block for _, block in numbered)


def last_then_follow(
    read: "Callable[[LogQuery], Iterator[LogChunk]]",
    query: LogQuery,
    count: int,
    pattern: "re.Pattern[str] | None",
) -> Iterator[LogBlock]:
    """Yields the current last lines of each replica, then lines that are written later."""
    given: dict[LogKey, int] = {}
    now = to_blocks(_counted(read(replace(query, follow=False)), given))
    yield from last_lines(matching(now, pattern) if pattern else now, count)
    if query.follow:
        later = to_blocks(_without(read(query), dict(given)))
        yield from matching(later, pattern) if pattern else later


def following_through_outages(
    read: "Callable[[], Iterator[LogChunk]]",
    away: "Callable[[str], None]",
    first_pause_s: float = 0.5,
) -> Iterator[LogChunk]:
    """Yields chunks of ``read()``, which is called again after an outage, without duplicates.

    Args:
        read: reads and follows from the beginning.
        away: called once for each outage, with the backend's message.
        first_pause_s: seconds before the first retry; doubled for each further one.

    Raises:
        BackendUnavailable: if the backend stays away for ``AWAY_S`` seconds.
    """
    given: dict[LogKey, int] = {}
    since: float | None = None
    pause_s = first_pause_s
    while True:
        before = sum(given.values())
        try:
            yield from _counted(_without(read(), dict(given)), given)
            return
        except BackendUnavailable as err:
            if not passes(err):
                raise
            now = time.monotonic()
            if since is None or sum(given.values()) > before:
                since, pause_s = now, first_pause_s
                away(str(err))
            elif now - since > AWAY_S:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _counted(chunks: Iterable[LogChunk], given: "dict[LogKey, int]") -> Iterator[LogChunk]:
    """Passes chunks through and counts the bytes of each attempt in ``given``."""
    for chunk in chunks:
        given[chunk[0]] = given.get(chunk[0], 0) + len(chunk[2])
        yield chunk


def _without(chunks: Iterable[LogChunk], given: "dict[LogKey, int]") -> Iterator[LogChunk]:
    """Skips the first bytes of each attempt, as many as ``given`` has."""
    for key, written, data in chunks:
        skip = given.get(key, 0)
        if not skip:
            yield key, written, data
        elif skip >= len(data):
            given[key] = skip - len(data)
        else:
            given[key] = 0
            yield key, written, data[skip:]
