"""Reads many logs concurrently in one event loop, each line once, despite interruptions."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable

from .answers import api_error, document
from .calls import PODS, Answer, Call, Object, StreamTransport, call
from .errors import AnswerLost, NotFound, Rejected, ServerBusy
from .log_lines import LogPosition
from .log_sources import OVER, LogSource, SourceState, state_of
from .retry import Patience

_STATUS_LAG_S = 3.0
"""Seconds by which a pod's status may lag behind the end of its log."""
_ATTEMPTS = 20
"""Times that a finished log is opened without new lines before giving up; by default that takes a
minute.
"""
_CALL_S = 30.0

logger = get_logger(__name__)

Deliver = Callable[[LogSource, Sequence[bytes], bool], Awaitable[None]]


class _Replaced(Exception):
    """The container was restarted and has a new log."""

    def __init__(self, state: SourceState) -> None:
        super().__init__(state)
        self.state = state


@dataclass(frozen=True)
class _Outcome:
    """The result of opening a log once; ``whole`` is ``None`` to open it again."""

    state: SourceState
    whole: bool | None = None
    err: Exception | None = None


class LogStreams:
    """Reads logs over one transport.

    Args:
        follow: continue until the container has ended.
        since_ns, tail: start of each log.
        patience: its pauses are made before each opening, the last one repeatedly.
        pod_of: returns the pod, maybe slightly outdated; ``None`` if there is none.
        next_change: waits until pods have changed.
        deliver: receives new lines, and whether the last one lacks its newline; waits while the
            buffer is full.
    """

    def __init__(
        self,
        streams: StreamTransport,
        *,
        follow: bool,
        since_ns: int | None,
        tail: int | None,
        pod_of: Callable[[LogSource], Object | None],
        next_change: Callable[[], Awaitable[None]],
        deliver: Deliver,
        user: str,
        patience: Patience,
    ) -> None:
        self._streams = streams
        self._follow = follow
        self._since_ns = since_ns
        self._tail = tail
        self._pod_of = pod_of
        self._next_change = next_change
        self._deliver = deliver
        self._user = user
        self._patience = patience
        self._following: dict[LogSource, anyio.CancelScope] = {}

    async def read(self, source: LogSource) -> bool:
        """Reads one log to its end; returns ``False`` if the cluster deleted it before.

        Raises:
            ApiError, BackendUnavailable: an error that retries do not fix.
        """
        position = LogPosition(self._since_ns, self._tail)
        state = state_of(source, self._pod_of(source))
        failures = 0
        while True:
            before = position.last
            outcome = await self._read_once(source, state, position)
            if outcome.whole is not None:
                return await self._end(source, position, outcome.whole)
            state = outcome.state
            failures = 0 if position.last != before else failures + 1
            if failures >= _ATTEMPTS and (not self._follow or state in OVER):
                return await self._given_up(source, position, outcome.err)
            if failures:
                await anyio.sleep(self._patience.pause_s(failures - 1))

    async def _read_once(
        self, source: LogSource, state: SourceState, position: LogPosition
    ) -> _Outcome:
        try:
            await self._open(source, state, position)
            if not self._follow and state not in OVER:
                return _Outcome(state, whole=True)
            state = await self._state_now(source, wait=True)
            whole = state in OVER and await self._is_all(source, state, position)
            return _Outcome(state, whole=whole or None)
        except NotFound:
            return _Outcome(state, whole=False)
        except Rejected as refused:
            if "previous terminated container" in str(refused):
                return _Outcome(state, whole=False)
            if "is waiting to start" not in str(refused):
                raise
            return _Outcome(await self._state_now(source, wait=True), err=refused)
        except _Replaced as replaced:
            gone = replaced.state is SourceState.GONE
            return _Outcome(replaced.state, whole=False if gone else None)
        except (BackendUnavailable, ServerBusy) as broken:
            return _Outcome(await self._state_now(source, wait=False), err=broken)

    async def _end(self, source: LogSource, position: LogPosition, whole: bool) -> bool:
        if lines := position.finish():
            await self._deliver(source, lines, True)
        return whole

    async def _given_up(
        self, source: LogSource, position: LogPosition, err: Exception | None
    ) -> bool:
        if err is not None:
            raise err
        name = f"`{source.container}` in pod `{source.pod}`"
        logger.warning("the end of the log of %s cannot be read", name)
        return await self._end(source, position, False)

    async def _open(self, source: LogSource, state: SourceState, position: LogPosition) -> None:
        """Reads until the stream ends properly."""
        query = {"timestamps": "true", **position.query()}
        if self._follow and state not in OVER:
            query["follow"] = "true"
        request = _log_call(source, state, query)
        if "follow" not in query:
            await self._receive(source, state, request, _CALL_S, position)
            return
        with anyio.CancelScope() as scope:
            self._following[source] = scope
            try:
                await self._receive(source, state, request, None, position)
            finally:
                del self._following[source]
        if scope.cancelled_caught:
            raise AnswerLost(f"the stream stayed open after the end: {request}")

    async def _receive(
        self,
        source: LogSource,
        state: SourceState,
        request: Call,
        read_s: float | None,
        position: LogPosition,
    ) -> None:
        async with self._streams.open(request, read_s) as stream:
            if stream.code >= 400:
                body = b"".join([chunk async for chunk in stream.chunks()])
                raise api_error(request, Answer(stream.code, stream.headers, body), self._user)
            if source.restarts and state is not SourceState.REPLACED:
                # this may be the log of the next instance, which the server does not report
                now = await self._asked(source)
                if now in (SourceState.REPLACED, SourceState.GONE):
                    raise _Replaced(now)
            async for chunk in stream.chunks():
                if lines := position.feed(chunk):
                    await self._deliver(source, lines, False)

    def stop_following(self, source: LogSource) -> None:
        """Closes the stream of an ended container; missing lines are then requested."""
        if scope := self._following.get(source):
            scope.cancel()

    async def _is_all(self, source: LogSource, state: SourceState, position: LogPosition) -> bool:
        """Returns True if an ended log was read completely, by checking its last line.

        The proper end of a stream is no proof: a restart of the node's agent looks the same.
        """
        request = _log_call(source, state, {"timestamps": "true", "tailLines": "1"})
        answer = await self._streams.send(request, _CALL_S)
        if answer.code >= 400:
            raise api_error(request, answer, self._user)
        return not position.lacks(answer.body.removesuffix(b"\n"))

    async def _state_now(self, source: LogSource, *, wait: bool) -> SourceState:
        """Returns the state of the container, from the cache or else from the server.

        Args:
            wait: True if its log has ended, so that a change is likely.
        """
        state = state_of(source, self._pod_of(source))
        if wait and state not in OVER:
            with anyio.move_on_after(_STATUS_LAG_S):
                while state not in OVER:
                    await self._next_change()
                    state = state_of(source, self._pod_of(source))
        if state in OVER:
            return state
        return await self._asked(source) or state

    async def _asked(self, source: LogSource) -> SourceState | None:
        """Queries the server for the container's state; ``None`` if it does not answer."""
        request = call("get", "GET", PODS, source.namespace, source.pod)
        try:
            answer = await self._streams.send(request, _CALL_S)
            return state_of(source, document(request, answer, self._user))
        except NotFound:
            return SourceState.GONE
        except (BackendUnavailable, ServerBusy):
            return None


def _log_call(source: LogSource, state: SourceState, query: dict[str, str]) -> Call:
    query = {"container": source.container, **query}
    if state is SourceState.REPLACED:
        query["previous"] = "true"
    return call("get", "GET", PODS, source.namespace, source.pod, subresource="log", query=query)
