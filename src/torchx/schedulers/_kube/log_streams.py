"""Reads many logs at a time inside one event loop, each line once, through whatever happens."""

import random
from collections.abc import Awaitable, Callable, Sequence

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
"""How long a pod's status may come after the end of its log."""
_CALL_S = 30.0

logger = get_logger(__name__)

Deliver = Callable[[LogSource, Sequence[bytes], bool], Awaitable[None]]


class LogStreams:
    """Reads logs over one transport.

    Args:
        follow: go on until the container has ended.
        since_ns, tail: where each log begins.
        patience: openings without a new line, after which a log that does not grow any more is
            given up, and the pauses before them.
        pod_of: the pod as it is known, maybe a little late; ``None`` if there is none.
        next_change: waits until pods have changed.
        deliver: takes new lines, and whether the last of them lacks its newline; waits while there
            is no room for them.
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
        """Reads one log to its end; ``False`` if the cluster deleted it before that.

        Raises:
            ApiError, BackendUnavailable: what asking again does not mend.
        """
        position = LogPosition(self._since_ns, self._tail)
        state = state_of(source, self._pod_of(source))
        failures = 0
        while True:
            before = position.last
            err: Exception | None = None
            try:
                await self._open(source, state, position)
                if not self._follow and state not in OVER:
                    return await self._end(source, position, True)
                state = await self._state_now(source, wait=True)
                if state in OVER and await self._is_all(source, state, position):
                    return await self._end(source, position, True)
            except NotFound:
                return await self._end(source, position, False)
            except Rejected as refused:
                if "previous terminated container" in str(refused):
                    return await self._end(source, position, False)
                if "is waiting to start" not in str(refused):
                    raise
                state, err = await self._state_now(source, wait=True), refused
            except (BackendUnavailable, ServerBusy) as broken:
                state, err = await self._state_now(source, wait=False), broken
            failures = 0 if position.last != before else failures + 1
            if failures > len(self._patience.pauses_s) and (not self._follow or state in OVER):
                return await self._given_up(source, position, err)
            await anyio.sleep(self._pause_s(failures))

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
        """Reads until the stream ends; its end was a proper one if this returns."""
        query = {"timestamps": "true", **position.query()}
        if self._follow and state not in OVER:
            query["follow"] = "true"
        request = _log_call(source, state, query)
        if "follow" not in query:
            await self._receive(source, request, _CALL_S, position)
            return
        with anyio.CancelScope() as scope:
            self._following[source] = scope
            try:
                await self._receive(source, request, None, position)
            finally:
                del self._following[source]
        if scope.cancelled_caught:
            raise AnswerLost(f"the stream stayed open after the end: {request}")

    async def _receive(
        self, source: LogSource, request: Call, read_s: float | None, position: LogPosition
    ) -> None:
        async with self._streams.open(request, read_s) as stream:
            if stream.code >= 400:
                body = b"".join([chunk async for chunk in stream.chunks()])
                raise api_error(request, Answer(stream.code, stream.headers, body), self._user)
            async for chunk in stream.chunks():
                if lines := position.feed(chunk):
                    await self._deliver(source, lines, False)

    def stop_following(self, source: LogSource) -> None:
        """Closes the stream of a container that has ended; what is missing is asked for then."""
        if scope := self._following.get(source):
            scope.cancel()

    async def _is_all(self, source: LogSource, state: SourceState, position: LogPosition) -> bool:
        """Whether a log that ended was read to its end, by a look at its last line.

        The proper end of a stream does not say so: the restart of a node's agent looks the same.
        """
        request = _log_call(source, state, {"timestamps": "true", "tailLines": "1"})
        answer = await self._streams.send(request, _CALL_S)
        if answer.code >= 400:
            raise api_error(request, answer, self._user)
        return not position.lacks(answer.body.removesuffix(b"\n"))

    def _pause_s(self, failures: int) -> float:
        if not failures:
            return 0.0
        pauses_s = self._patience.pauses_s or (0.0,)
        return pauses_s[min(failures, len(pauses_s)) - 1] * random.uniform(0.5, 1.5)

    async def _state_now(self, source: LogSource, *, wait: bool) -> SourceState:
        """What becomes of the container: as it is known, else as the server says when asked.

        Args:
            wait: its log ended, so that news of its own end are likely.
        """
        state = state_of(source, self._pod_of(source))
        if wait and state not in OVER:
            with anyio.move_on_after(_STATUS_LAG_S):
                while state not in OVER:
                    await self._next_change()
                    state = state_of(source, self._pod_of(source))
        if state in OVER:
            return state
        request = call("get", "GET", PODS, source.namespace, source.pod)
        try:
            answer = await self._streams.send(request, _CALL_S)
            return state_of(source, document(request, answer, self._user))
        except NotFound:
            return SourceState.GONE
        except (BackendUnavailable, ServerBusy):
            return state


def _log_call(source: LogSource, state: SourceState, query: dict[str, str]) -> Call:
    query = {"container": source.container, **query}
    if state is SourceState.REPLACED:
        query["previous"] = "true"
    return call("get", "GET", PODS, source.namespace, source.pod, subresource="log", query=query)
