"""Logs of many pods in one iterator: one thread in the background reads them all."""

import queue
import resource
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from torchx.schedulers._core.log_query import LogQuery

from .calls import PODS, Object, Selection, StreamTransport
from .client import KubeClient, Listed
from .live import LiveObjects, first_cause
from .log_lines import parse_line
from .log_sources import OVER, LogSource, state_of
from .log_streams import LogStreams

HELD_BYTES = 8 * 1024 * 1024
"""Most lines that wait for the reader; above that, nothing is read from the cluster."""
_SPARE_FILES = 200
_LATE_S = 15.0
"""Seconds for which a stream may stay open after the end of its container."""
_SETTLE_S = 0.05
"""Seconds within which changes of pods are processed together."""


@dataclass(frozen=True)
class PodLines:
    """Lines of one log, each preceded by its time.

    Args:
        end: ``done`` or ``gone`` after the last line: read completely, or deleted before.
        unended: the last line of the log lacks its newline.
    """

    source: LogSource
    lines: Sequence[bytes] = ()
    end: str = ""
    unended: bool = False

    def timed(self) -> Iterator[tuple[int | None, bytes]]:
        """Yields each line's time, in nanoseconds since 1970, and text."""
        return map(parse_line, self.lines)


View = Callable[[Selection], list[Object]]


@dataclass(frozen=True)
class LogPlan:
    """The logs to read now.

    Args:
        sources: all of them; known ones are not started again.
        ended: True if no more will be added.
    """

    sources: Sequence[LogSource]
    ended: bool


class LogReader:
    """An iterator over chunks of all logs of a plan, in order of arrival.

    Use it as a context manager, which closes all streams. Lines of one log keep their order.

    Args:
        start: the selections for the plan, including the pods, each with the result of an earlier
            list, or ``None`` to list first.
        plan: called with the objects of each selection, again after each change while following;
            it must be quick, and runs in another thread.
        query: of which ``follow``, ``since_ns`` (the server shows the whole second) and ``tail``
            count. When following, missing pods are waited for until the plan has ended.
    """

    def __init__(
        self,
        client: KubeClient,
        start: Mapping[Selection, Listed | None],
        plan: Callable[[View], LogPlan],
        query: LogQuery,
    ) -> None:
        self._client = client
        self._start = dict(start)
        self._plan = plan
        self._query = query
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._queue: queue.SimpleQueue[PodLines | BaseException | None] = queue.SimpleQueue()
        self._put_bytes = 0
        self._taken_bytes = 0
        self._wanting_room = threading.Event()
        self._pods: dict[tuple[str, str], Object] = {}
        self._begun: set[LogSource] = set()
        self._unfinished: set[LogSource] = set()
        self._over: set[LogSource] = set()

    def __enter__(self) -> "LogReader":
        self._portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        _, scope = self._portal.start_task(self._run)
        self._stack.callback(self._portal.call, scope.cancel)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[PodLines]:
        """Yields chunks until the plan has ended and all its logs were read.

        Raises:
            ApiError, BackendUnavailable: an error that retries do not fix.
        """
        while (chunks := self.take()) is not None:
            yield from chunks

    def take(self, timeout_s: float | None = None) -> list[PodLines] | None:
        """Returns all available chunks, at least one unless timed out; ``None`` after the last.

        Raises:
            ApiError, BackendUnavailable: like iteration.
        """
        found: list[PodLines] = []
        try:
            item = self._queue.get(timeout=timeout_s)
            while isinstance(item, PodLines):
                found.append(item)
                item = self._queue.get_nowait()
        except queue.Empty:
            self._note_taken(found)
            return found
        if not found:
            if item is None:
                return None
            raise item
        self._queue.put(item)  # the end, which comes after all chunks
        self._note_taken(found)
        return found

    def _note_taken(self, chunks: Sequence[PodLines]) -> None:
        self._taken_bytes += sum(len(line) for chunk in chunks for line in chunk.lines)
        if self._wanting_room.is_set() and self.held_bytes() < HELD_BYTES // 2 and self._portal:
            self._wanting_room.clear()
            self._portal.start_task_soon(self._make_room)

    def held_bytes(self) -> int:
        """Bytes of the lines that were read from the cluster and not taken yet."""
        return self._put_bytes - self._taken_bytes

    async def _run(self, *, task_status: TaskStatus[anyio.CancelScope]) -> None:
        """Does all the work in the background; errors are raised by the iterator."""
        streams = self._client.transport.streams()
        with anyio.CancelScope() as scope:
            self._room, self._settled, self._unsettled = (anyio.Event() for _ in range(3))
            task_status.started(scope)
            try:
                await self._read_all(streams)
            except Exception as err:  # noqa: BLE001 - raised by the iterator in its own thread
                self._queue.put(first_cause(err))
        self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await streams.close()

    async def _read_all(self, streams: StreamTransport) -> None:
        live = LiveObjects(self._client, streams, self._start, lambda: self._unsettled.set())
        reader = LogStreams(
            streams,
            follow=self._query.follow,
            since_ns=self._query.since_ns,
            tail=self._query.tail,
            pod_of=lambda source: self._pods.get((source.namespace, source.pod)),
            next_change=lambda: self._settled.wait(),
            deliver=self._deliver,
            user=self._client.user,
            patience=self._client.patience,
        )
        async with anyio.create_task_group() as tasks:
            await live.list_all()
            if self._query.follow:
                tasks.start_soon(live.run)
                await self._follow_plan(live, reader, tasks)
            else:
                self._begin(live, reader, tasks)
                while self._unfinished:
                    await self._unsettled.wait()
                    self._unsettled = anyio.Event()
            tasks.cancel_scope.cancel()

    async def _follow_plan(self, live: LiveObjects, reader: LogStreams, tasks: TaskGroup) -> None:
        """Starts each log when it exists, until the plan has ended and all were read."""
        while True:
            self._unsettled = anyio.Event()
            started_s = anyio.current_time()
            ended = self._begin(live, reader, tasks)
            if live.failure is not None:
                raise live.failure
            if ended and not self._unfinished:
                return
            # repeated checks of many pods must leave time to read
            await anyio.sleep(max(_SETTLE_S, 4 * (anyio.current_time() - started_s)))
            await self._unsettled.wait()

    def _begin(self, live: LiveObjects, reader: LogStreams, tasks: TaskGroup) -> bool:
        """Checks the pods and starts new logs; returns True if the plan has ended."""
        pods = (pod for s in self._start if s.kind == PODS for pod in live.objects(s))
        self._pods = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in pods}
        plan = self._plan(live.objects)
        fresh = [source for source in plan.sources if source not in self._begun]
        self._begun.update(fresh)
        self._unfinished.update(fresh)
        _allow_open_files(len(self._unfinished) + _SPARE_FILES)
        for source in fresh:
            tasks.start_soon(self._read, reader, source)
        for source in self._unfinished - self._over if self._query.follow else ():
            if state_of(source, self._pods.get((source.namespace, source.pod))) in OVER:
                self._over.add(source)
                tasks.start_soon(self._stop_late_stream, reader, source)
        self._settled.set()
        self._settled = anyio.Event()
        return plan.ended

    async def _stop_late_stream(self, reader: LogStreams, source: LogSource) -> None:
        """Closes a stream that stays open long after its container ended: no data will come."""
        await anyio.sleep(_LATE_S)
        reader.stop_following(source)

    async def _read(self, reader: LogStreams, source: LogSource) -> None:
        whole = await reader.read(source)
        self._queue.put(PodLines(source, (), "done" if whole else "gone"))
        self._unfinished.discard(source)
        self._unsettled.set()

    async def _deliver(self, source: LogSource, lines: Sequence[bytes], unended: bool) -> None:
        self._put_bytes += sum(map(len, lines))
        self._queue.put(PodLines(source, lines, unended=unended))
        while self.held_bytes() > HELD_BYTES:
            self._wanting_room.set()
            if self.held_bytes() > HELD_BYTES // 2:
                await self._room.wait()

    async def _make_room(self) -> None:
        self._room.set()
        self._room = anyio.Event()


def _allow_open_files(count: int) -> None:
    """Raises the soft limit of open files, 1,024 on most systems, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
