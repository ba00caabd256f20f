"""Stands between boto3 and a server that speaks AWS's protocols: passes all on, or breaks it."""

import contextlib
import http.client
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

REFUSAL = json.dumps(
    {"__type": "AccessDeniedException", "message": "User: tester is not authorized to do that"}
).encode()


class AwsRelay:
    """A running relay; use it as a context."""

    def __init__(self, url: str) -> None:
        relay = self
        self._target = urlsplit(url).netloc
        self._lock = threading.Lock()
        self.calls: list[str] = []
        """``batch:submitjob`` and ``logs:GetLogEvents``, oldest first."""
        self._fault: tuple[str, str, int, int] | None = None

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                relay.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "AwsRelay":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextlib.contextmanager
    def faulty(
        self, action: str, match: str = "", skip: int = 0, times: int = -1
    ) -> Iterator[None]:
        """Within it, calls that match are dropped (``drop``) or refused (``refuse``).

        Args:
            skip: calls that pass first.
            times: calls that it meets; negative for all.
        """
        self._fault = action, match, skip, times
        try:
            yield
        finally:
            self._fault = None

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Passes one request on, or does not."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        action = self._meet(_title(handler))
        if action == "drop":
            handler.close_connection = True
            handler.connection.close()
            return
        if action == "refuse":
            handler.send_response(403)
            reply, headers = REFUSAL, [("x-amzn-ErrorType", "AccessDeniedException")]
        else:
            connection = http.client.HTTPConnection(self._target, timeout=60)
            connection.request("POST", handler.path, body, dict(handler.headers))
            answer = connection.getresponse()
            reply = answer.read()
            connection.close()
            handler.send_response(answer.status)
            headers = [item for item in answer.getheaders() if item[0].lower().startswith("x-amz")]
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Type", "application/x-amz-json-1.1")
        handler.send_header("Content-Length", str(len(reply)))
        handler.end_headers()
        handler.wfile.write(reply)

    def _meet(self, title: str) -> str:
        with self._lock:
            self.calls.append(title)
            if self._fault is None or not re.search(self._fault[1], title):
                return ""
            action, match, skip, times = self._fault
            if skip:
                self._fault = action, match, skip - 1, times
                return ""
            if not times:
                return ""
            self._fault = action, match, 0, times - 1
            return action


def _title(handler: BaseHTTPRequestHandler) -> str:
    target = handler.headers.get("X-Amz-Target")
    if target:
        return f"{target.partition('_')[0].lower()}:{target.rpartition('.')[2]}"
    return f"batch:{handler.path.rpartition('/')[2]}"
