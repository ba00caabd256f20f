"""Reads the output of containers: whole lines with their times."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torchx._docker import translate_errors, with_retries
from torchx.errors import DockerRefused, LogsNotFound
from torchx.schedulers._core.logs import BLOCK_BYTES
from torchx.schedulers._core.merging import TimedLine, merge_batches
from torchx.schedulers.api import AppSnapshot, LogChunk, LogKey, LogQuery, ReplicaKey, Stream

from ._client import Daemon
from ._times import as_seconds, parse_ns

_HEADER_BYTES = 8
_STAMP_CHARS = 30
"""Docker writes times in UTC and with nine digits: ``2026-01-02T03:04:05.123456789Z``."""
_CONNECT_S = 10.0
_SOCKET_SLACK_S = 0.5
_MORE_ENTRIES = 4
"""Log entries that are read for each requested last line."""
_STDOUT, _STDERR = 1, 2
OUTPUTS = {
    Stream.STDOUT: frozenset({_STDOUT}),
    Stream.STDERR: frozenset({_STDERR}),
    Stream.COMBINED: frozenset({_STDOUT, _STDERR}),
}


class Source:
    """The output of one replica.

    Args:
        order: breaks ties of time between replicas.
    """

    __slots__ = ("container_id", "key", "order")

    def __init__(self, container_id: str, key: LogKey, order: int) -> None:
        self.container_id = container_id
        self.key = key
        self.order = order


def sources_of(snapshot: AppSnapshot, replicas: Sequence[ReplicaKey]) -> list[Source]:
    """Returns the sources of these replicas.

    Raises:
        LogsNotFound: if a replica has several containers, made by hand.
    """
    ids: dict[ReplicaKey, list[str]] = {}
    for replica in snapshot.replicas:
        ids.setdefault(replica.key, []).append(replica.native_id)
    for role, k in replicas:
        if len(ids[role, k]) > 1:
            raise LogsNotFound(several_containers(snapshot.app_id, role, k))
    return [Source(ids[key][0], LogKey(*key), i) for i, key in enumerate(replicas)]


def several_containers(app_id: str, role: str, k: int) -> str:
    """Returns the message for a replica with several containers."""
    return f"app `{app_id}` has several containers for replica `{role}/{k}`: remove all but one"


def read_now(daemon: Daemon, sources: Sequence[Source], query: LogQuery) -> Iterator[LogChunk]:
    """Yields the current lines of some replicas, by time."""
    return merge_batches([(source.key, read(daemon, source, query)) for source in sources])


def read(daemon: Daemon, source: Source, query: LogQuery) -> Iterator[list[TimedLine]]:
    """Yields batches of the current lines, or of the last ones for ``tail``."""
    if query.tail is None:
        yield from _read_all(daemon, source, query)
        return
    found = None if query.until_ns is not None else _read_end(daemon, source, query, query.tail)
    if found is None:
        batches = _read_all(daemon, source, replace(query, tail=None))
        found = deque((line for batch in batches for line in batch), query.tail)
    if found:
        yield [*found]


def _read_all(daemon: Daemon, source: Source, query: LogQuery) -> Iterator[list[TimedLine]]:
    reader = LineReader(OUTPUTS[query.stream])
    response = open_log(daemon, source, query, follow=False)
    try:
        with translate_errors(_reading(source)):
            for data in _blocks(response.iter_content(chunk_size=None)):
                yield reader.feed(data)
        yield reader.rest()
    finally:
        response.close()


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Joins pieces: the daemon sends each line separately."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)


def _read_end(
    daemon: Daemon, source: Source, query: LogQuery, count: int
) -> "Sequence[TimedLine] | None":
    """Returns at least the last lines, from the end of the log; ``None`` if not found there.

    Docker counts pieces of long lines, and of both streams, whichever is requested.
    """
    entries = _MORE_ENTRIES * count
    both = replace(query, stream=Stream.COMBINED, tail=entries)
    outputs = OUTPUTS[query.stream]
    reader = LineReader(outputs)
    response = open_log(daemon, source, both, follow=False)
    try:
        with translate_errors(_reading(source)):
            data = response.content
    finally:
        response.close()
    lines = [*reader.feed(data), *reader.rest()]
    if reader.entries < entries:
        return lines  # the whole log
    for output in outputs:
        # the first line of each stream may lack its start
        for line in LineReader(frozenset({output})).feed(data)[:1]:
            lines.remove(line)
    return lines if len(lines) >= count else None


def open_log(daemon: Daemon, source: Source, query: LogQuery, follow: bool) -> Any:
    """Returns the daemon's streaming response."""
    api = daemon.api
    url = f"{api.base_url}/v{api.api_version}/containers/{source.container_id}/logs"
    outputs = OUTPUTS[query.stream]
    params: dict[str, object] = {
        "stdout": int(_STDOUT in outputs),
        "stderr": int(_STDERR in outputs),
        "follow": int(follow),
        "timestamps": 1,
        "tail": "all" if query.tail is None else query.tail,
    }
    read_s = None
    if query.since_ns is not None:
        params["since"] = as_seconds(query.since_ns)
    if query.until_ns is not None:
        params["until"] = as_seconds(query.until_ns)
        if follow:  # the daemon checks the time only when there is a line
            read_s = max(0.0, (query.until_ns - time.time_ns()) / 1e9) + _SOCKET_SLACK_S
    doing = _reading(source)
    response = with_retries(
        doing, lambda: api.get(url, params=params, stream=True, timeout=(_CONNECT_S, read_s))
    )
    if response.status_code >= 400:
        text = response.text.strip()
        response.close()
        raise DockerRefused(f"Docker cannot {doing}: {text}", response.status_code)
    return response


def _reading(source: Source) -> str:
    return f"read the log of {source.key.role}/{source.key.replica}"


class LineReader:
    """Assembles lines from Docker's stream, in chunks of any size.

    It is a sequence of messages, each of one output stream; a long line is split into several,
    interleaved with those of the other stream. https://docs.docker.com/reference/api/engine/,
    "Attach to a container", says how messages are framed.

    Args:
        outputs: numbers of the requested streams.
    """

    def __init__(self, outputs: "frozenset[int]") -> None:
        self.entries = 0
        """Number of messages, of all streams."""
        self._outputs = outputs
        self._held = b""
        self._begun: dict[int, tuple[int, list[bytes]]] = {}
        """Incomplete lines, by stream."""
        self._second = b"none yet"
        self._second_ns = 0

    def feed(self, data: bytes) -> list[TimedLine]:
        """Returns the lines completed by these bytes."""
        if self._held:
            data = self._held + data
        lines: list[TimedLine] = []
        begun = self._begun
        at, size = 0, len(data)
        while size - at >= _HEADER_BYTES:
            output = data[at]
            start = at + _HEADER_BYTES
            end = start + int.from_bytes(data[at + 4 : start], "big")
            if end > size:
                break
            at = end
            self.entries += 1
            if output not in self._outputs:
                continue
            text_at = start + _STAMP_CHARS
            stamp, text = data[start:text_at], data[text_at + 1 : end]
            if output in begun or not text.endswith(b"\n"):
                line = self._add(output, stamp, text)
                if line is not None:
                    lines.append(line)
            else:
                lines.append((self._time(stamp), text))
        self._held = data[at:]
        return lines

    def _add(self, output: int, stamp: bytes, text: bytes) -> TimedLine | None:
        """Adds a piece of a line; returns the line if it is complete."""
        begun = self._begun.get(output)
        if begun is None:
            if text:
                self._begun[output] = (self._time(stamp), [text])
            return None
        begun[1].append(text)
        if not text.endswith(b"\n"):
            return None
        del self._begun[output]
        return begun[0], b"".join(begun[1])

    def begun(self) -> list[int]:
        """Returns the times of incomplete lines."""
        return [written_ns for written_ns, _ in self._begun.values()]

    def rest(self) -> list[TimedLine]:
        """Returns incomplete lines; call it at the end of the stream."""
        lines = sorted((written_ns, b"".join(parts)) for written_ns, parts in self._begun.values())
        self._begun.clear()
        return lines

    def _time(self, stamp: bytes) -> int:
        """Parses a time to nanoseconds since the epoch; seconds are cached."""
        if not stamp.startswith(self._second):
            self._second = stamp[:19]
            self._second_ns = parse_ns(self._second.decode("ascii", "replace")) or 0
        return self._second_ns + int(stamp[20:29])
