"""Sends calls with long responses, many at a time in one event loop, over httpcore."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import anyio.to_thread
import httpcore

from .calls import Answer, Call
from .server import Certificate, Headers, Server, answer, decoded

SHORT_CALLS = 16
"""Concurrent calls with a short response."""
OPENING = 64
"""Streams that may be opened at a time: a thousand concurrent TLS handshakes time out."""


class HttpStreams:
    """Opens streams, each on a connection of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._opening = anyio.Semaphore(OPENING)
        # not left to the pool, which scans all waiters whenever a connection is free
        self._calling = anyio.Semaphore(SHORT_CALLS)
        self._short: httpcore.AsyncConnectionPool | None = None
        self._short_certificate: Certificate | None = None

    @asynccontextmanager
    async def open(self, call: Call, read_timeout_s: float | None) -> AsyncIterator["HttpStream"]:
        """Sends the call; the stream is closed at the end of the context."""
        async with AsyncExitStack() as stack:
            async with self._opening:
                response = await self._opened(stack, call, read_timeout_s)
            yield HttpStream(self._server, call, response)

    async def _opened(
        self, stack: AsyncExitStack, call: Call, read_timeout_s: float | None
    ) -> httpcore.Response:
        for last in (False, True):
            certificate, credentials = await self._credentials()
            # a pool of one each: a pool of a thousand scans all for every change of one
            pool = httpcore.AsyncConnectionPool(**self._server.pool_options(certificate, 1))
            attempt = AsyncExitStack()
            await attempt.enter_async_context(pool)
            try:
                with self._server.translate_errors(call):
                    response = await attempt.enter_async_context(
                        pool.stream(
                            call.method,
                            self._server.url(call),
                            headers=self._server.headers(call, credentials, compress=False),
                            content=call.body,
                            extensions=self._server.extensions(read_timeout_s),
                        )
                    )
            except BaseException:
                await attempt.aclose()
                raise
            if response.status != 401 or last or not await self._refreshed(credentials):
                stack.push_async_exit(attempt)
                return response
            await attempt.aclose()
        raise AssertionError("the last attempt returns")

    async def send(self, call: Call, timeout_s: float) -> Answer:
        """Sends one call and returns its whole response."""
        async with self._calling:
            return await self._send_or_refresh(call, timeout_s)

    async def _send_or_refresh(self, call: Call, timeout_s: float) -> Answer:
        certificate, credentials = await self._credentials()
        answered = await self._sent(call, certificate, credentials, timeout_s)
        if answered.code == 401 and await self._refreshed(credentials):
            certificate, credentials = await self._credentials()
            answered = await self._sent(call, certificate, credentials, timeout_s)
        return answered

    async def _sent(
        self,
        call: Call,
        certificate: Certificate | None,
        credentials: Headers,
        timeout_s: float,
    ) -> Answer:
        if self._short is None or certificate != self._short_certificate:
            options = self._server.pool_options(certificate, SHORT_CALLS)
            self._short = httpcore.AsyncConnectionPool(**options)
            self._short_certificate = certificate
        with self._server.translate_errors(call):
            response = await self._short.request(
                call.method,
                self._server.url(call),
                headers=self._server.headers(call, credentials),
                content=call.body,
                extensions=self._server.extensions(timeout_s),
            )
        return answer(response.status, response.headers, response.content)

    async def _credentials(self) -> tuple[Certificate | None, Headers]:
        credentials = self._server.credentials
        if self._server.config.user.plugin is None:
            return credentials.certificate(), credentials.headers()
        # a plugin may take long
        certificate = await anyio.to_thread.run_sync(credentials.certificate)
        return certificate, await anyio.to_thread.run_sync(credentials.headers)

    async def _refreshed(self, rejected: Headers) -> bool:
        return await anyio.to_thread.run_sync(self._server.credentials.refresh, rejected)

    async def close(self) -> None:
        """Closes the connections of short calls; streams are closed by their owners."""
        if self._short is not None:
            await self._short.aclose()
            self._short = None


class HttpStream:
    """A response that arrives in parts."""

    def __init__(self, server: Server, call: Call, response: httpcore.Response) -> None:
        self.code: int = response.status
        self.headers: Mapping[str, str] = decoded(response.headers)
        self._server = server
        self._call = call
        self._response = response

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body in pieces of any size."""
        with self._server.translate_errors(self._call):
            async for chunk in self._response.aiter_stream():
                yield chunk
