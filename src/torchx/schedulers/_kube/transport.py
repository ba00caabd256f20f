"""Sends calls to the server over httpcore, with one response each."""

import threading

import httpcore

from .calls import Answer, Call, StreamTransport
from .config import Config
from .server import Certificate, Headers, Server, answer

MAX_CONNECTIONS = 10
"""Concurrent calls of one process; further ones wait for a connection."""


class HttpTransport:
    """The transport for a kubeconfig; safe to share among threads.

    Rejected credentials are renewed once for each call, if possible.
    """

    def __init__(self, config: Config, max_connections: int = MAX_CONNECTIONS) -> None:
        self.server = Server(config)
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._pool: httpcore.ConnectionPool | None = None
        self._certificate: Certificate | None = None

    def send(self, call: Call, timeout_s: float) -> Answer:
        """Sends the call once, or twice if the credentials were renewed."""
        credentials = self.server.credentials.headers()
        answered = self._send(call, credentials, timeout_s)
        if answered.code == 401 and self.server.credentials.refresh(credentials):
            answered = self._send(call, self.server.credentials.headers(), timeout_s)
        return answered

    def _send(self, call: Call, credentials: Headers, timeout_s: float) -> Answer:
        pool = self._current_pool()
        with self.server.translate_errors(call):
            response = pool.request(
                call.method,
                self.server.url(call),
                headers=self.server.headers(call, credentials),
                content=call.body,
                extensions=self.server.extensions(timeout_s),
            )
            return answer(response.status, response.headers, response.content)

    def _current_pool(self) -> httpcore.ConnectionPool:
        """Returns the pool with the current certificate; plugins may return a new one."""
        certificate = self.server.credentials.certificate()
        with self._lock:
            if self._pool is None or certificate != self._certificate:
                if self._pool is not None:
                    self._pool.close()
                options = self.server.pool_options(certificate, self._max_connections)
                self._pool = httpcore.ConnectionPool(**options)
                self._certificate = certificate
            return self._pool

    def streams(self) -> StreamTransport:
        """Returns a transport for watches and logs, with the same server and credentials."""
        from .streams import HttpStreams  # loads asyncio, which a single query does not need

        return HttpStreams(self.server)

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None
