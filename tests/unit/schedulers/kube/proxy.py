"""A small HTTP proxy that records what goes through it."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Proxy:
    """Where it is, and the first line and the credentials of each request."""

    url: str
    lines: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)


@contextmanager
def running_proxy() -> Iterator[Proxy]:
    """A proxy until the end of the context."""
    proxy = Proxy("")

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            _forward(self, proxy)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


def _forward(client: socketserver.StreamRequestHandler, proxy: Proxy) -> None:
    first = client.rfile.readline()
    if not first:
        return
    proxy.lines.append(first.decode().strip())
    head = []
    while (line := client.rfile.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        if name.lower() == "proxy-authorization":
            proxy.credentials.append(value.strip())
        head.append(line)
    method, target, version = first.decode().split()
    url = urlsplit(f"//{target}" if method == "CONNECT" else target)
    with socket.create_connection((url.hostname, url.port)) as server:
        if method == "CONNECT":
            client.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = f"{url.path}?{url.query}" if url.query else url.path
            server.sendall(f"{method} {path} {version}\r\n".encode() + b"".join(head) + b"\r\n")
        back = threading.Thread(target=_copy, args=(server, client.connection))
        back.start()
        _copy(client.connection, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
