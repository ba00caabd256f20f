"""Runs commands in pods, and connects to their ports."""

import json
import os
import secrets
import struct
from typing import TYPE_CHECKING

from torchx.errors import UnexpectedReply, UnsupportedRequest
from torchx.schedulers._core.executing import COMMAND_NOT_FOUND, ExecRequest, signal_script
from torchx.schedulers._core.terminal import converse, terminal_size
from torchx.settings import ENV_TORCHX_EXEC

from .calls import PODS, Call, call
from .client import KubeClient
from .errors import AnswerLost, ApiError

if TYPE_CHECKING:
    from .sockets import WebSocket

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""Subprotocols; only ``v5`` can signal the end of input."""
_PORT_PROTOCOLS = ("v4.channel.k8s.io",)
_DATA, _PORT_ERROR = 0, 1
_FAILED = 1


def execute(
    kube: KubeClient, namespace: str, pod: str, container: str, request: ExecRequest
) -> int:
    """Runs a command in a running container and returns its exit code as a shell reports it."""
    mark = secrets.token_hex(8)
    command = request.command
    if not request.tty:  # without a terminal, signals find it by its environment
        command = ("env", f"{ENV_TORCHX_EXEC}={mark}", *command)
    remote = _Exec(kube, namespace, pod, container, command, request, mark)
    try:
        if request.tty:
            remote.resize(*terminal_size(request))
        converse(remote, request)
        code, words = exit_code(remote.outcome)
    finally:
        remote.close()
    if code == COMMAND_NOT_FOUND and request.command[0] in words:
        os.write(request.stderr, f"{request.command[0]}: command not found\n".encode())
    elif words:
        os.write(request.stderr, f"{words}\n".encode())
    return code


def exit_code(outcome: bytes) -> tuple[int, str]:
    """Parses the server's outcome of a command: exit code and message.

    >>> exit_code(b'{"status": "Success"}')
    (0, '')
    """
    if not outcome:
        raise AnswerLost("the connection broke off, it is not known how the command ended")
    try:
        status = json.loads(outcome)
    except ValueError:
        raise UnexpectedReply("exec", outcome.decode("utf-8", "replace")) from None
    if status.get("status") == "Success":
        return 0, ""
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"]), ""
    words = str(status.get("message") or "the command could not be run")
    missing = "executable file not found" in words or "no such file or directory" in words
    return (COMMAND_NOT_FOUND if missing else _FAILED), words


class _Exec:
    """The connection to one command."""

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        pod: str,
        container: str,
        command: tuple[str, ...],
        request: ExecRequest,
        mark: str,
    ) -> None:
        self._kube = kube
        self._place = (namespace, pod, container)
        self._tty = request.tty
        self._mark = mark
        self.outcome = b""
        """The server's message about the end."""
        stdin = request.stdin is not None
        self._socket = _open_exec(kube, self._place, command, stdin, request.tty)

    def receive(self) -> tuple[int, bytes] | None:
        try:
            return self._receive()
        except AnswerLost:
            if self.outcome:  # everything was received by then
                return None
            raise

    def _receive(self) -> tuple[int, bytes] | None:
        while (message := self._socket.receive()) is not None:
            channel, data = message[0] if message else _CLOSE, message[1:]
            if channel in (_STDOUT, _STDERR) and data:
                return channel, data
            if channel == _ERROR:
                self.outcome += data
        return None

    def send(self, data: bytes) -> None:
        self._socket.send(bytes([_STDIN]) + data)

    def close_input(self) -> None:
        if self._socket.protocol == _EXEC_PROTOCOLS[0]:
            self._socket.send(bytes([_CLOSE, _STDIN]))

    def resize(self, rows: int, columns: int) -> None:
        size = json.dumps({"Width": columns, "Height": rows})
        self._socket.send(bytes([_RESIZE]) + size.encode())

    def signal(self, name: str) -> None:
        if self._tty:
            return
        command = ("sh", "-c", signal_script(self._mark, name))
        other = _open_exec(self._kube, self._place, command, stdin=False, tty=False)
        try:
            while other.receive() is not None:
                pass
        finally:
            other.close()

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


def _open_exec(
    kube: KubeClient,
    place: tuple[str, str, str],
    command: tuple[str, ...],
    stdin: bool,
    tty: bool,
) -> "WebSocket":
    namespace, pod, container = place
    flags = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    query = [
        ("container", container),
        *((name, "true") for name, wanted in flags.items() if wanted),
        *(("command", word) for word in command),
    ]
    return _open(kube, _pod_call("exec", namespace, pod, query), _EXEC_PROTOCOLS)


def _pod_call(sub: str, namespace: str, pod: str, query: list[tuple[str, str]]) -> Call:
    from dataclasses import replace

    plain = call("get", "GET", PODS, namespace, pod, subresource=sub, idempotent=False)
    return replace(plain, query=tuple(query))


def _open(kube: KubeClient, opening: Call, protocols: tuple[str, ...]) -> "WebSocket":
    from .sockets import WebSocket
    from .transport import HttpTransport

    if not isinstance(kube.transport, HttpTransport):
        raise UnsupportedRequest("the given client of the API server cannot open websockets")
    try:
        return WebSocket(kube.transport.server, opening, protocols, kube.user)
    except ApiError as err:
        if err.code == 400 and "pgrade" in str(err):
            msg = "the cluster or a proxy before it takes no websockets; use `kubectl exec`"
            raise UnsupportedRequest(msg) from None
        raise


class PodPort:
    """A connection to a port of a pod."""

    def __init__(self, kube: KubeClient, namespace: str, pod: str, port: int) -> None:
        opening = _pod_call("portforward", namespace, pod, [("ports", str(port))])
        self._socket = _open(kube, opening, _PORT_PROTOCOLS)
        self._port = struct.pack("<H", port)
        self._begun = {_DATA: False, _PORT_ERROR: False}

    def receive(self) -> bytes:
        """Returns the next data from the port; empty once the connection is closed."""
        while (message := self._socket.receive()) is not None:
            channel, data = message[0] if message else _DATA, message[1:]
            if not self._begun.get(channel, True):  # each channel begins with its port
                self._begun[channel] = True
                data = data.removeprefix(self._port)
            if not data:
                continue
            if channel == _PORT_ERROR:
                raise AnswerLost(data.decode("utf-8", "replace").strip())
            return data
        return b""

    def send(self, data: bytes) -> None:
        """Sends data."""
        self._socket.send(bytes([_DATA]) + data)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()
