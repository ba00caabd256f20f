"""Websockets to an API server, over connections of httpcore.

Frames are made and read by wsproto; see
https://kubernetes.io/docs/reference/using-api/api-concepts/ and RFC 6455.
"""

import base64
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpcore

from torchx.errors import NotInstalled, UnexpectedReply

from .answers import document
from .calls import Answer, Call
from .errors import AnswerLost
from .server import Server, decoded

if TYPE_CHECKING:
    from wsproto.connection import Connection

_CHUNK = 65536


class WebSocket:
    """A websocket. One thread may receive while others send.

    Args:
        protocols: the supported subprotocols, best one first.

    Raises:
        NotInstalled: without the package for frames.
        ApiError: if the server refuses to open it.
        NotSent, AnswerLost: if it cannot be reached.
    """

    def __init__(self, server: Server, call: Call, protocols: Sequence[str], user: str) -> None:
        self._frames = _frames()
        self._server = server
        self._call = call
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._ended = False
        try:
            self._stream, self.protocol = self._open(protocols, user)
        except BaseException:
            self._stack.close()
            raise

    def _open(self, protocols: Sequence[str], user: str) -> tuple[Any, str]:
        server, credentials = self._server, self._server.credentials
        given = credentials.headers()
        response = self._request(given, protocols)
        if response.status == 401 and credentials.refresh(given):
            response = self._request(credentials.headers(), protocols)
        if response.status != 101:
            with server.translate_errors(self._call):
                body = response.read()
            document(self._call, Answer(response.status, decoded(response.headers), body), user)
            raise UnexpectedReply(str(self._call), f"HTTP {response.status}")
        headers = decoded(response.headers)
        stream = response.extensions["network_stream"]
        return stream, headers.get("sec-websocket-protocol", "")

    def _request(self, credentials: Any, protocols: Sequence[str]) -> httpcore.Response:
        server = self._server
        self._stack.close()
        options = server.pool_options(server.credentials.certificate(), 1)
        pool = self._stack.enter_context(httpcore.ConnectionPool(**options))
        key = base64.b64encode(os.urandom(16)).decode()
        given = server.headers(self._call, credentials, compress=False)
        headers = [
            *((name, value) for name, value in given if name != "Accept"),
            ("Accept", "*/*"),  # kubelets have no JSON where they have streams
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", key),
            ("Sec-WebSocket-Protocol", ", ".join(protocols)),
        ]
        with server.translate_errors(self._call):
            return self._stack.enter_context(
                pool.stream(
                    self._call.method,
                    server.url(self._call),
                    headers=headers,
                    extensions=server.extensions(None),
                )
            )

    def receive(self) -> bytes | None:
        """Returns the next message; ``None`` once the other side has closed the websocket."""
        from wsproto import events

        parts: list[bytes] = []
        while True:
            for event in self._frames.events():
                if isinstance(event, events.BytesMessage | events.TextMessage):
                    data = event.data
                    parts.append(data.encode() if isinstance(data, str) else bytes(data))
                    if event.message_finished:
                        return b"".join(parts)
                elif isinstance(event, events.Ping):
                    self._write(event.response())
                elif isinstance(event, events.CloseConnection):
                    self._ended = True
            if self._ended:
                return None
            with self._server.translate_errors(self._call):
                data = self._stream.read(_CHUNK)
            self._frames.receive_data(data or None)
            if not data:
                self._ended = True

    def send(self, data: bytes) -> None:
        """Sends one message."""
        from wsproto import events

        self._write(events.BytesMessage(data=data))

    def _write(self, event: Any) -> None:
        from wsproto.utilities import LocalProtocolError

        with self._lock:
            try:
                data = self._frames.send(event)
            except LocalProtocolError:
                raise AnswerLost(f"`{self._call}` has ended") from None
            with self._server.translate_errors(self._call):
                self._stream.write(data)

    def close(self) -> None:
        """Closes the connection; a thread that receives gets ``None`` or ``AnswerLost``."""
        import socket

        self._ended = True
        raw = self._stream.get_extra_info("socket")
        if raw is not None:
            try:
                raw.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is closed already
                pass
        self._stack.close()


def _frames() -> "Connection":
    try:
        from wsproto.connection import Connection, ConnectionType
    except ModuleNotFoundError as err:
        if err.name != "wsproto":
            raise
        msg = "commands in pods and their ports need the Python package `wsproto`"
        raise NotInstalled(msg, name="wsproto", extra="kubernetes") from None
    return Connection(ConnectionType.CLIENT)
