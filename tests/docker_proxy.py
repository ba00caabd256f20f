"""A socket in front of the Docker daemon that counts what is asked, refuses, and goes away."""

import contextlib
import http.client
import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

DAEMON = "/var/run/docker.sock"


class DockerProxy:
    """Passes every request on to the daemon.

    Args:
        path: of its own socket.
        daemon: path of the daemon's.
    """

    def __init__(self, path: Path, daemon: str = DAEMON) -> None:
        self.url = f"unix://{path}"
        self.calls: list[tuple[str, str]] = []
        """Method and path of each request, without the version of the API."""
        self._daemon = daemon
        self._away = False
        self._refused = re.compile("")
        self._orders_left: int | None = None
        self._open: set[socket.socket] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.upstream = _connection(outer._daemon)
                outer._open |= {self.connection, self.upstream.sock}
                if outer._away:
                    outer._hang_up()

            def finish(self) -> None:
                outer._open -= {self.connection, self.upstream.sock}
                self.upstream.close()
                with contextlib.suppress(OSError):
                    super().finish()

            def _pass_on(self) -> None:
                try:
                    outer._pass_on(self, self.upstream)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True

            do_GET = do_POST = do_DELETE = do_HEAD = _pass_on

            def address_string(self) -> str:
                return "local"

            def log_message(self, *args: object) -> None:
                pass

        class Server(socketserver.ThreadingUnixStreamServer):
            request_queue_size = 400

            def handle_error(self, *args: object) -> None:
                pass  # a connection that was cut

        self._server = Server(str(path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def _pass_on(self, handler: Any, upstream: http.client.HTTPConnection) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        path = handler.path.partition("?")[0]
        if path.startswith("/v1."):
            path = path[path.index("/", 1) :]
        self.calls.append((handler.command, path))
        if self._orders_left is not None and self._refused.fullmatch(f"{handler.command} {path}"):
            if self._orders_left == 0:
                _answer(handler, 500, b'{"message": "no space left on device"}')
                return
            self._orders_left -= 1
        upstream.request(handler.command, handler.path, body, dict(handler.headers))
        response = upstream.getresponse()
        if not response.chunked:
            _answer(handler, response.status, response.read(), response)
            return
        _begin(handler, response.status, response)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while data := response.read1(1 << 16):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.wfile.write(b"0\r\n\r\n")

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Breaks all connections, also new ones."""
        self._away = True
        self._hang_up()
        try:
            yield
        finally:
            self._away = False

    @contextlib.contextmanager
    def refusing(self, after: int = 0, what: str = "POST .*") -> Iterator[None]:
        """Refuses some requests after so many of them.

        Args:
            what: an expression for method and path.
        """
        self._refused = re.compile(what)
        self._orders_left = after
        try:
            yield
        finally:
            self._orders_left = None

    def _hang_up(self) -> None:
        for connection in [*self._open]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "DockerProxy":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._hang_up()
        self._server.server_close()  # waits for the threads of connections


def _connection(path: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    return connection


def _begin(handler: Any, status: int, response: Any = None) -> None:
    handler.send_response_only(status)
    for name, value in response.getheaders() if response is not None else ():
        if name not in ("Transfer-Encoding", "Content-Length", "Connection"):
            handler.send_header(name, value)


def _answer(handler: Any, status: int, content: bytes, response: Any = None) -> None:
    _begin(handler, status, response)
    if status != 204:
        handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)
