"""An HTTP server on a socket that stands where Docker's daemon stands, and answers as told."""

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from itertools import chain
from urllib.parse import parse_qs, unquote, urlsplit

LABELS = {
    "torchx.pytorch.org/version": "1",
    "torchx.pytorch.org/app-id": "job-x1",
    "torchx.pytorch.org/role-name": "worker",
    "torchx.pytorch.org/replica-id": "0",
}


def row(status: str, text: str = "", k: int = 0, **more) -> dict:
    """One container as the daemon lists it."""
    labels = {**LABELS, "torchx.pytorch.org/replica-id": str(k)}
    name = f"/job-x1-worker-{k}"
    found = {"Id": f"{k:012x}" + 52 * "0", "Names": [name], "Labels": labels, "State": status}
    return {**found, "Status": text, "ImageID": "sha256:1", **more}


def frame(output: int, content: bytes) -> bytes:
    """One message of a log stream."""
    return bytes([output, 0, 0, 0]) + len(content).to_bytes(4, "big") + content


def stamp(n: int) -> bytes:
    """The time of a log line: so many nanoseconds after the beginning of 2026."""
    return b"2026-01-01T00:00:00.%09dZ" % n


class FakeDaemon:
    """Answers with what ``routes`` says: by method and beginning of the path, the first that fits.

    An answer is (status, data), a function of (path, query, body) that gives one, or ``None`` for a
    connection that breaks. Bytes are sent as they are, those of a tuple or an iterator in chunks as
    they come. ``calls`` holds what was asked.
    """

    def __init__(self, routes, path=None):
        self.calls = []
        self._open = set()
        self._routes = {
            ("GET", "/version"): (200, {"ApiVersion": "1.41"}),
            ("GET", "/volumes"): (200, {"Volumes": None}),
            **routes,
        }
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"null") if length else None
                if self.headers.get("Transfer-Encoding") == "chunked":  # the context of a build
                    while size := int(self.rfile.readline() or b"0", 16):
                        self.rfile.read(size + len(b"\r\n"))
                    self.rfile.readline()
                outer._serve(self, body)

            do_GET = do_POST = do_DELETE = _answer

            def setup(self):
                super().setup()
                outer._open.add(self.connection)

            def finish(self):
                outer._open.discard(self.connection)
                super().finish()

            def address_string(self):
                return "local"

            def log_message(self, *args):
                pass

        if path is not None:

            class Server(socketserver.ThreadingUnixStreamServer):
                request_queue_size = 100

            self._server = Server(str(path), Handler)
            self.url = f"unix://{path}"
        else:

            class TcpServer(socketserver.ThreadingTCPServer):
                request_queue_size = 100

            self._server = TcpServer(("127.0.0.1", 0), Handler)
            self.url = f"tcp://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def _serve(self, handler, body):
        parts = urlsplit(handler.path)
        path = unquote(parts.path)
        if path.startswith("/v1."):
            path = path[path.index("/", 1) :]
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.calls.append((handler.command, path, query))
        answer = next(
            (
                found
                for (method, prefix), found in self._routes.items()
                if method == handler.command and path.startswith(prefix)
            ),
            (404, {"message": f"no such thing: {path}"}),
        )
        if callable(answer):
            answer = answer(path, query, body)
        if answer is None:
            handler.close_connection = True
            handler.connection.close()
            return
        status, data = answer
        if isinstance(data, tuple | Iterator):
            handler.send_response(status)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for chunk in chain(data, [b""]):
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            return
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        if status == 204:
            content = b""
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def made(self, method: str, prefix: str) -> list[str]:
        """Paths that were asked for."""
        return [p for m, p, _ in self.calls if m == method and p.startswith(prefix)]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._server.shutdown()
        self._thread.join()
        for connection in [*self._open]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()  # waits for the threads of connections
