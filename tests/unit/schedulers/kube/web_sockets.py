"""A server of websockets as those of pods: what it says is up to the test."""

import base64
import hashlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

from wsproto import events
from wsproto.connection import Connection, ConnectionType, LocalProtocolError

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_REFUSAL = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"

Talk = Callable[["Conversation"], None]


class Conversation:
    """One websocket, from the side of the server."""

    def __init__(self, connection: socket.socket, target: str) -> None:
        self._connection = connection
        self._frames = Connection(ConnectionType.SERVER)
        self.path = urlsplit(target).path
        self.query = parse_qsl(urlsplit(target).query)

    def send(self, channel: int, data: bytes) -> None:
        message = events.BytesMessage(data=bytes([channel]) + data)
        self._connection.sendall(self._frames.send(message))

    def ping(self) -> None:
        self._connection.sendall(self._frames.send(events.Ping(b"there?")))

    def receive(self) -> "bytes | None":
        """The next message; ``None`` once the client has gone."""
        found = b""
        while True:
            for event in self._frames.events():
                if isinstance(event, events.BytesMessage):
                    found += event.data
                    if event.message_finished:
                        return found
                if isinstance(event, events.CloseConnection):
                    return None
            try:
                data = self._connection.recv(65536)
            except OSError:
                return None
            if not data:
                return None
            self._frames.receive_data(data)

    def end(self) -> None:
        try:
            self._connection.sendall(self._frames.send(events.CloseConnection(1000)))
            while self._connection.recv(65536):  # what is left unread would reset the connection
                pass
        except (OSError, LocalProtocolError):  # the client went first
            pass


class PodServer:
    """Answers each request with the next of what the test gives it.

    Args:
        answers: what to say on a websocket, or a status and a body in place of opening one.
    """

    def __init__(self, *answers: "Talk | tuple[int, bytes]", protocol: str = "") -> None:
        self._answers = list(answers)
        self._protocol = protocol
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heads: list[str] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._listener.accept()
            thread = threading.Thread(target=self._answer, args=(connection, answer))
            self._threads.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket, answer: "Talk | tuple[int, bytes]") -> None:
        with connection:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connection.recv(1)
            text = head.decode()
            self.heads.append(text)
            if isinstance(answer, tuple):
                code, body = answer
                connection.sendall(_REFUSAL % (code, len(body), body))
                return
            headers = dict(line.split(": ", 1) for line in text.strip().split("\r\n")[1:])
            key = headers["Sec-WebSocket-Key"].encode()
            accept = base64.b64encode(hashlib.sha1(key + _MAGIC).digest()).decode()
            protocol = self._protocol or headers["Sec-WebSocket-Protocol"].split(", ")[0]
            connection.sendall(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}"
                "\r\n\r\n".encode()
            )
            conversation = Conversation(connection, text.split(" ")[1])
            answer(conversation)
            conversation.end()

    def close(self) -> None:
        for thread in self._threads:
            thread.join(20)
        self._listener.close()
