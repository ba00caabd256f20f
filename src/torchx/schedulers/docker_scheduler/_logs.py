"""Reads what containers print: whole lines, of one replica or of many in the order of time."""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchx.errors import BackendUnavailable, DockerRefused
from torchx.schedulers._tracebacks import tracebacks_in
from torchx.schedulers.api import LogBlock, Stream, split_lines

from ._client import Daemon, EventCursor, as_seconds, errors_of, repeated

if TYPE_CHECKING:
    from queue import SimpleQueue

_HEADER_BYTES = 8
_BLOCK_CHARS = 1 << 16
_HOLD_NS = 100_000_000
"""How long a line of one replica waits for older ones of others, while they are followed."""
_PATIENCE_S = 5.0
"""How long the first lines wait until all replicas are being read."""
_REOPEN_S = 0.2
_RESTART_S = 30.0
_SEARCHED_LINES = 2000
"""How much of the end of a log is searched for a traceback."""
_REMEMBERED = 1000
"""Lines whose repetition is noticed: two outputs may be logged in another order than they have."""
_SOCKET_SLACK_S = 0.5
_ENDED = ("exited", "dead", "removing")

Line = tuple[bytes, bytes]
"""The time as Docker writes it, always in UTC and of one length, so that bytes compare; a line."""


class Source:
    """What one replica prints.

    Args:
        order: breaks ties of time between replicas.
    """

    __slots__ = ("container_id", "order", "replica", "role")

    def __init__(self, container_id: str, role: str, replica: int, order: int) -> None:
        self.container_id = container_id
        self.role = role
        self.replica = replica
        self.order = order


class Query:
    """Which lines are wanted."""

    __slots__ = ("since_ns", "stderr", "stdout", "tail", "until_ns")

    def __init__(
        self,
        stream: Stream | None,
        since_ns: int | None = None,
        until_ns: int | None = None,
        tail: int | None = None,
    ) -> None:
        self.stdout = stream is not Stream.STDERR
        self.stderr = stream is not Stream.STDOUT
        self.since_ns = since_ns
        self.until_ns = until_ns
        self.tail = tail
        """Only this many entries at the end; ``None`` for all."""


def split_frames(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The messages in Docker's stream: number of the output (1 or 2), content with its time.

    https://docs.docker.com/reference/api/engine/, "Attach to a container", says how it is framed.
    """
    held = b""
    for chunk in chunks:
        data = held + chunk if held else chunk
        at = 0
        while len(data) - at >= _HEADER_BYTES:
            end = at + _HEADER_BYTES + int.from_bytes(data[at + 4 : at + 8], "big")
            if end > len(data):
                break
            yield data[at], data[at + _HEADER_BYTES : end]
            at = end
        held = data[at:]


class Joiner:
    """Puts lines together: Docker cuts long ones, with the other output between the pieces."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[bytes, list[bytes]]] = {}
        """Lines that have begun, by output."""

    def add(self, output: int, content: bytes) -> Line | None:
        """The line that this message ends, if it does."""
        stamp, _, text = content.partition(b" ")
        begun = self.held.get(output)
        if not text.endswith(b"\n"):
            if begun is not None:
                begun[1].append(text)
            elif text:
                self.held[output] = (stamp, [text])
            return None
        if begun is None:
            return stamp, text
        del self.held[output]
        return begun[0], b"".join((*begun[1], text))

    def rest(self) -> list[Line]:
        """Lines that have no end; call it when there is nothing more to come."""
        lines = sorted((stamp, b"".join(pieces)) for stamp, pieces in self.held.values())
        self.held.clear()
        return lines


def read(daemon: Daemon, source: Source, query: Query) -> Iterator[Line]:
    """The lines that there are now."""
    joiner = Joiner()
    response = _open(daemon, source, query, follow=False)
    try:
        with errors_of(f"read the log of {source.role}/{source.replica}"):
            for output, content in split_frames(response.iter_content(chunk_size=None)):
                line = joiner.add(output, content)
                if line is not None:
                    yield line
        yield from joiner.rest()
    finally:
        response.close()


class Follower:
    """Reads one replica until its container has ended for good.

    Args:
        opened: called when the daemon begins to send what there is of the replica.
    """

    def __init__(
        self,
        daemon: Daemon,
        source: Source,
        query: Query,
        opened: "Callable[[Source], None] | None" = None,
    ) -> None:
        self.source = source
        self._opened = opened
        self._daemon = daemon
        self._query = query
        self._stream: Any = None
        self._closed = False
        self._given: dict[bytes, int] = {}
        """How many lines were given, by time; the last ones only."""
        self._unfinished: list[bytes] = []
        """Times of the lines that had no end when the last stream ended."""

    def lines(self) -> Iterator[Line]:
        """Whole lines as they come."""
        while not self._closed:
            # asked first: what was written before the end is read after it
            asked_ns = time.time_ns()
            status = self._status()
            ended = status in _ENDED
            yield from self._rest() if ended else self._live()
            if ended or self._past():
                return
            self._wait(asked_ns)

    def close(self) -> None:
        """Ends ``lines``, also from another thread."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()

    def _status(self) -> str:
        record = self._daemon.inspect(self.source.container_id)
        return "dead" if record is None else str((record.get("State") or {}).get("Status"))

    def _rest(self) -> Iterator[Line]:
        """What an ended container has printed after what was given."""
        skip = dict(self._given)
        try:
            for line in read(self._daemon, self.source, self._remaining()):
                if skip.get(line[0], 0) > 0:
                    skip[line[0]] -= 1
                else:
                    yield line
        except DockerRefused as err:
            if err.status != 404:  # removed
                raise

    def _live(self) -> Iterator[Line]:
        """One stream of the daemon: it ends with each attempt. Lines without end wait."""
        from docker.types import CancellableStream

        skip = dict(self._given)
        joiner = Joiner()
        try:
            response = _open(self._daemon, self.source, self._remaining(), follow=True)
        except DockerRefused as err:
            if err.status != 404:
                raise
            return
        chunks = response.iter_content(chunk_size=None)
        self._stream = stream = CancellableStream(chunks, response)
        if self._closed:
            stream.close()
        if self._opened is not None:
            self._opened(self.source)
        try:
            for output, content in split_frames(stream):
                line = joiner.add(output, content)
                if line is None:
                    continue
                if skip.get(line[0], 0) > 0:
                    skip[line[0]] -= 1
                    continue
                self._note(line[0], joiner)
                yield line
        finally:
            stream.close()
        self._unfinished = [stamp for stamp, _ in joiner.held.values()]

    def _note(self, stamp: bytes, joiner: Joiner) -> None:
        """Remembers that a line was given."""
        given = self._given
        given[stamp] = given.get(stamp, 0) + 1
        # nothing is dropped behind a line that has begun: it is read again from its beginning
        if len(given) > 2 * _REMEMBERED and not joiner.held:
            self._given = {s: given[s] for s in sorted(given)[-_REMEMBERED:]}

    def _remaining(self) -> Query:
        """The query without what was given before the lines that are remembered."""
        stamps = [*self._given, *self._unfinished]
        if not stamps:
            return self._query
        query = Query(None, parse_ns(min(stamps)), self._query.until_ns)
        query.stdout, query.stderr = self._query.stdout, self._query.stderr
        return query

    def _past(self) -> bool:
        until_ns = self._query.until_ns
        return until_ns is not None and time.time_ns() >= until_ns

    def _wait(self, since_ns: int) -> None:
        """Returns when there may be more to read."""
        status = self._status()
        if status == "running":  # again already, or the stream broke
            time.sleep(_REOPEN_S)
        elif status not in _ENDED:
            wait_s = _RESTART_S
            if self._query.until_ns is not None:
                wait_s = min(wait_s, max(0.0, (self._query.until_ns - time.time_ns()) / 1e9))
            filters = {"container": self.source.container_id}
            self._daemon.wait_for_event(filters, EventCursor(since_ns), wait_s)


def _open(daemon: Daemon, source: Source, query: Query, follow: bool) -> Any:
    """The daemon's answer, which streams."""
    api = daemon.api
    url = f"{api.base_url}/v{api.api_version}/containers/{source.container_id}/logs"
    params: dict[str, object] = {
        "stdout": int(query.stdout),
        "stderr": int(query.stderr),
        "follow": int(follow),
        "timestamps": 1,
        "tail": "all" if query.tail is None else query.tail,
    }
    read_s = None
    if query.since_ns is not None:
        params["since"] = as_seconds(query.since_ns)
    if query.until_ns is not None:
        params["until"] = as_seconds(query.until_ns)
        if follow:  # the daemon looks at the time only when there is a line
            read_s = max(0.0, (query.until_ns - time.time_ns()) / 1e9) + _SOCKET_SLACK_S

    def get() -> Any:
        return api.get(url, params=params, stream=True, timeout=(10.0, read_s))

    doing = f"read the log of {source.role}/{source.replica}"
    response = repeated(doing, get)
    if response.status_code >= 400:
        text = response.text.strip()
        response.close()
        raise DockerRefused(f"Docker cannot {doing}: {text}", response.status_code)
    return response


def read_merged(daemon: Daemon, sources: Sequence[Source], query: Query) -> Iterator[LogBlock]:
    """What there is now of several replicas, in the order of time."""
    streams = [_tagged(source, read(daemon, source, query)) for source in sources]
    merged = heapq.merge(*streams, key=lambda item: item[:2])
    yield from to_blocks((source, text) for _, _, text, source in merged)


def _tagged(source: Source, lines: Iterable[Line]) -> Iterator[tuple[bytes, int, bytes, Source]]:
    for stamp, text in lines:
        yield stamp, source.order, text, source


def follow_one(daemon: Daemon, source: Source, query: Query) -> Iterator[LogBlock]:
    """Lines of one replica as they come."""
    follower = Follower(daemon, source, query)
    try:
        for _, text in follower.lines():
            yield LogBlock(source.role, source.replica, 0, text.decode("utf-8", "replace"))
    finally:
        follower.close()


def follow_merged(daemon: Daemon, sources: Sequence[Source], query: Query) -> Iterator[LogBlock]:
    """Lines of several replicas as they come, in the order of time but for what comes late."""
    import threading
    from queue import SimpleQueue

    found: SimpleQueue[Any] = SimpleQueue()

    def opened(source: Source) -> None:
        found.put((source, _OPENED, None))

    followers = [Follower(daemon, source, query, opened) for source in sources]
    for follower in followers:
        threading.Thread(
            target=_feed, args=(follower, found), name="torchx-docker-log", daemon=True
        ).start()
    merge = _Merge(sources)
    skew_ns = daemon.clock_skew_ns()
    try:
        while merge.live or merge.held:
            items = _take(found, _HOLD_NS / 1e9 if merge.held else None) if merge.live else []
            merge.add(items)
            if merge.complete_from_the_start():
                quiet = not (merge.live and items)
                before = b"\xff" if quiet else _stamp_of(skew_ns - _HOLD_NS)
                yield from to_blocks(merge.before(before))
        if merge.failure is not None:
            raise merge.failure
    finally:
        for follower in followers:
            follower.close()


def _take(found: "SimpleQueue[Any]", timeout_s: float | None) -> "list[Any]":
    """All that is on the queue, at least one item; nothing after the time."""
    from queue import Empty

    try:
        items = [found.get(timeout=timeout_s)]
    except Empty:
        return []
    while not found.empty():
        items.append(found.get_nowait())
    return items


class _Merge:
    """Holds lines of several replicas until it is known that none before them will come."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.live = len(sources)
        """How many replicas are still being read."""
        self.held: list[tuple[bytes, int, int, bytes, Source]] = []
        self.failure: BaseException | None = None
        self._silent = {source.order for source in sources}
        self._deadline = time.monotonic() + _PATIENCE_S
        self._number = 0

    def add(self, items: "Iterable[Any]") -> None:
        """Takes what ``_feed`` put on the queue."""
        for source, stamp, text in items:
            self._silent.discard(source.order)
            if stamp is None:
                self.live -= 1
                self.failure = self.failure or text
            elif stamp is not _OPENED:
                self._number += 1
                heapq.heappush(self.held, (stamp, source.order, self._number, text, source))

    def complete_from_the_start(self) -> bool:
        """Whether every replica is being read: what one printed may be older than all the rest."""
        return not self._silent or time.monotonic() >= self._deadline

    def before(self, stamp: bytes) -> Iterator[tuple[Source, bytes]]:
        """Lines of that time and earlier, which are no longer held."""
        while self.held and self.held[0][0] <= stamp:
            _, _, _, text, source = heapq.heappop(self.held)
            yield source, text


_OPENED = object()
"""On the queue in place of the time of a line: the replica is being read from now on."""


def _feed(follower: Follower, found: "SimpleQueue[Any]") -> None:
    """Puts lines on the queue, and at the end what went wrong, if anything did."""
    failure: BaseException | None = None
    try:
        for stamp, text in follower.lines():
            found.put((follower.source, stamp, text))
    except (BackendUnavailable, DockerRefused) as err:
        failure = err
    finally:
        found.put((follower.source, None, failure))


def _stamp_of(ahead_ns: int) -> bytes:
    """The time that is so far ahead of now, as Docker writes it."""
    from datetime import datetime, timedelta, timezone

    moment = datetime.now(timezone.utc) + timedelta(microseconds=ahead_ns // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


def to_blocks(lines: Iterable[tuple[Source, bytes]]) -> Iterator[LogBlock]:
    """Joins neighbouring lines of one replica, up to a bound."""
    current: Source | None = None
    texts: list[bytes] = []
    size = 0
    for source, text in lines:
        if current is not None and (source is not current or size >= _BLOCK_CHARS):
            yield _block(current, texts)
            texts, size = [], 0
        current = source
        texts.append(text)
        size += len(text)
    if current is not None:
        yield _block(current, texts)


def _block(source: Source, texts: "list[bytes]") -> LogBlock:
    text = b"".join(texts).decode("utf-8", "replace")
    return LogBlock(source.role, source.replica, 0, text)


def lines_of(blocks: Iterable[LogBlock]) -> Iterator[str]:
    """The lines of blocks of one replica."""
    for block in blocks:
        yield from split_lines(block.text)


def last_lines(daemon: Daemon, source: Source, count: int) -> "list[str]":
    """The last lines of a replica's errors, or of all it printed if it wrote no errors."""
    for stream in (Stream.STDERR, None):
        try:
            found = [text for _, text in read(daemon, source, Query(stream, tail=5 * count))]
        except (DockerRefused, BackendUnavailable):
            return []
        lines = [line for text in found if (line := text.decode("utf-8", "replace").rstrip())]
        if lines:
            return lines[-count:]
    return []


def printed_tracebacks(daemon: Daemon, source: Source) -> "list[str]":
    """The Python tracebacks near the end of what a replica printed."""
    for stream in (Stream.STDERR, Stream.STDOUT):
        try:
            lines = [text for _, text in read(daemon, source, Query(stream, tail=_SEARCHED_LINES))]
        except (DockerRefused, BackendUnavailable):
            return []
        found = tracebacks_in(b"".join(lines).decode("utf-8", "replace"))
        if found:
            return found
    return []


def parse_ns(stamp: bytes) -> int:
    """Nanoseconds since the epoch of a time as Docker writes it in logs.

    >>> parse_ns(b"1970-01-01T00:00:01.000000002Z")
    1000000002
    """
    from datetime import datetime, timezone

    text = stamp.decode("ascii", "replace")
    moment = datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    digits = text[20:].rstrip("Z")
    return int(moment.timestamp()) * 1_000_000_000 + int((digits + "0" * 9)[:9])
