"""A Docker daemon that says what a test tells it to, and keeps what it is sent."""

import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BASE_ID = "sha256:" + "b" * 64
BUILT_ID = "sha256:" + "c" * 64

Answer = list[dict[str, Any]] | tuple[int, str]
"""Events, or an HTTP status and a message; an empty list breaks the connection."""


class FakeDaemon:
    def __init__(self) -> None:
        self.images = {"base": BASE_ID, "base:latest": BASE_ID, BASE_ID: BASE_ID}
        self.requests: list[str] = []
        self.arguments: list[dict[str, str]] = []
        self.contexts: list[bytes] = []
        self.build: Answer = [
            {"stream": "Step 1/2 : FROM base"},
            {"stream": "\n"},
            {"stream": "[Warning] One or more build-args [X] were not consumed\n"},
            {"aux": {"ID": BUILT_ID}},
            {"stream": "Successfully built c\n"},
        ]
        self.pull: Answer = (404, "pull access denied for it")
        self.pushes: list[Answer] = []
        self.logins: list[str] = []
        """What came with pushes as log-ins to the registry."""
        self.reads_context = True

    def count(self, what: str) -> int:
        return sum(request.startswith(what) for request in self.requests)

    def context(self) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(fileobj=io.BytesIO(self.contexts[-1]), mode="r:") as tar:
            return {member.name: member for member in tar.getmembers()}

    def sent(self, path: str) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(self.contexts[-1]), mode="r:") as tar:
            file = tar.extractfile(path)
            assert file is not None
            return file.read()

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Answer | str:
        name = unquote(path.removeprefix("/images/"))
        if path == "/version":
            return json.dumps({"ApiVersion": "1.41", "MinAPIVersion": "1.24"})
        if path == "/images/create":
            image = f"{query['fromImage']}:{query['tag']}"
            if isinstance(self.pull, list) and not any("error" in e for e in self.pull):
                self.images[image] = BASE_ID
            return self.pull
        if path == "/build":
            self.contexts.append(body)
            self.arguments.append(query)
            if isinstance(self.build, list):
                ids = [e["aux"]["ID"] for e in self.build if e.get("aux")]
                self.images.update({i: i for i in ids})
            return self.build
        if name.endswith("/json"):
            image = name.removesuffix("/json")
            if image not in self.images:
                return 404, f"No such image: {image}"
            return json.dumps({"Id": self.images[image], "RepoTags": [], "Config": {}})
        if name.endswith("/tag"):
            return "{}"
        if name.endswith("/push"):
            return self.pushes.pop(0)
        return 404, f"no {method} {path} here"


class Handler(BaseHTTPRequestHandler):
    daemon: FakeDaemon
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        url = urlsplit(self.path)
        path = re.sub(r"^/v[0-9.]+", "", url.path)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        self.daemon.requests.append(f"{self.command} {path}")
        if path.endswith("/push"):
            self.daemon.logins.append(self.headers.get("X-Registry-Auth") or "")
        self._reply(self.daemon.answer(self.command, path, query, self._body()))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _reply(self, answer: "Answer | str") -> None:
        self.close_connection = True
        if not answer:
            return
        status, parts = 200, [str(answer)]
        if isinstance(answer, tuple):
            status, parts = answer[0], [json.dumps({"message": answer[1]})]
        elif isinstance(answer, list):
            parts = [json.dumps(event) + "\r\n" for event in answer]
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for part in (*parts, ""):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part.encode()), part.encode()))


@contextmanager
def running(daemon: FakeDaemon) -> Iterator[str]:
    """The URL of the daemon, as long as it runs."""

    handler = type("Handler", (Handler,), {"daemon": daemon})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
