"""Stands in front of a real API server: counts what is asked, refuses, and goes away."""

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torchx.schedulers._kube.config import Config
from torchx.schedulers._kube.discover import load_config
from torchx.schedulers._kube.tls import tls_context


class KubeRelay:
    """Passes every request on, with the credentials of a kubeconfig; use it as a context.

    Args:
        target: a kubeconfig with a client certificate or a token.
        path: where the kubeconfig for the relay itself is written.
        namespace: of its context.
    """

    def __init__(self, target: Path, path: Path, namespace: str = "default") -> None:
        self.kubeconfig = str(path)
        self.calls: list[str] = []
        """Method and target of each request."""
        self.upstream = Upstream(load_config(str(target)))
        self._away = False
        self._refused: tuple[str, int, int] | None = None
        self._open: set[socket.socket] = set()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                relay._open.add(self.connection)

            def do_GET(self) -> None:
                relay.answer(self)

            do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        port = self._server.server_address[1]
        context = {"cluster": "relay", "user": "relay", "namespace": namespace}
        document = {
            "current-context": "relay",
            "clusters": [{"name": "relay", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "relay", "user": {}}],
            "contexts": [{"name": "relay", "context": context}],
        }
        path.write_text(json.dumps(document))

    def __enter__(self) -> "KubeRelay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._hang_up()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Breaks all connections, and accepts none until the end of the context."""
        self._away = True
        self._hang_up()
        try:
            yield
        finally:
            self._away = False

    @contextlib.contextmanager
    def refusing(self, match: str, skip: int = 0, times: int = -1) -> Iterator[None]:
        """Forbids requests that match, after so many that pass."""
        self._refused = (match, skip, times)
        try:
            yield
        finally:
            self._refused = None

    def _hang_up(self) -> None:
        for connection in [*self._open]:
            self._open.discard(connection)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One request."""
        handler.close_connection = True
        if self._away:
            return
        subject = f"{handler.command} {handler.path}"
        self.calls.append(subject)
        length = int(handler.headers.get("content-length") or 0)
        body = handler.rfile.read(length) if length else None
        if self._refuses(subject):
            status = {"kind": "Status", "message": "refused by the test", "reason": "Forbidden"}
            text = json.dumps({**status, "code": 403}).encode()
            handler.send_response(403)
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text)
            return
        with contextlib.suppress(OSError):  # either side may hang up
            self.upstream.forward(handler, body)

    def _refuses(self, subject: str) -> bool:
        if self._refused is None or not re.search(self._refused[0], subject):
            return False
        match, skip, times = self._refused
        if skip > 0:
            self._refused = (match, skip - 1, times)
            return False
        self._refused = (match, 0, times - 1)
        return times != 0


class Upstream:
    """The server itself."""

    def __init__(self, config: Config) -> None:
        user = config.user
        pair = (user.certificate, user.key) if user.certificate and user.key else None
        self._context: ssl.SSLContext | None = tls_context(config.cluster, pair)
        url = urlsplit(config.cluster.server)
        self._where = (url.hostname or "", url.port or 443)
        self._token = user.token

    def forward(self, handler: BaseHTTPRequestHandler, body: bytes | None) -> None:
        """Passes a request on, and its answer back as it comes."""
        connection: Any
        if self._context is not None:
            connection = http.client.HTTPSConnection(*self._where, context=self._context)
        else:
            connection = http.client.HTTPConnection(*self._where)
        headers = {k: v for k, v in handler.headers.items() if k.lower() != "accept-encoding"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        with contextlib.closing(connection):
            connection.request(handler.command, handler.path, body, headers)
            answer = connection.getresponse()
            handler.send_response(answer.status)
            handler.send_header("Content-Type", answer.headers.get("Content-Type") or "")
            handler.send_header("Connection", "close")
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            while chunk := answer.read1(1 << 16):
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                handler.wfile.flush()
            handler.wfile.write(b"0\r\n\r\n")
