"""Runs commands in running containers, connected to our terminal."""

import os
import secrets
import socket
import struct
from typing import Any

from torchx._docker import translate_errors
from torchx._startup.lazy_logger import get_logger
from torchx.errors import DockerRefused
from torchx.schedulers._core.executing import COMMAND_NOT_FOUND, ExecRequest, signal_script
from torchx.schedulers._core.terminal import converse, terminal_size
from torchx.settings import ENV_TORCHX_EXEC

_HEADER = struct.Struct(">BxxxL")
_CHUNK = 65536
_NOT_EXECUTABLE = 126

logger = get_logger(__name__)


def execute(client: Any, container: str, request: ExecRequest) -> int:
    """Runs the command and returns its exit code as a shell reports it.

    Raises:
        DockerRefused: if the container does not run any more.
    """
    mark = secrets.token_hex(8)
    env = {ENV_TORCHX_EXEC: mark}
    if request.tty and "TERM" in os.environ:
        env["TERM"] = os.environ["TERM"]
    doing = f"run a command in container `{container[:12]}`"
    with translate_errors(doing):
        made = client.api.exec_create(
            container,
            [*request.command],
            stdin=request.stdin is not None,
            tty=request.tty,
            environment=env,
        )
    exec_id = str(made["Id"])
    try:
        with translate_errors(doing):
            remote = _Exec(client, container, exec_id, request, mark)
    except DockerRefused as err:
        if "executable file not found" not in str(err) and "no such file" not in str(err):
            raise
        os.write(request.stderr, f"{request.command[0]}: command not found\n".encode())
        return COMMAND_NOT_FOUND
    try:
        if request.tty:
            remote.resize(*terminal_size(request))
        with translate_errors(doing):
            converse(remote, request)
    finally:
        remote.close()
    return _exit_code(client, exec_id)


def _exit_code(client: Any, exec_id: str) -> int:
    with translate_errors("find out how a command ended"):
        record = client.api.exec_inspect(exec_id)
    code = record.get("ExitCode")
    return _NOT_EXECUTABLE if code is None else int(code)


class _Exec:
    """The connection to one command, which starts with this object."""

    def __init__(
        self, client: Any, container: str, exec_id: str, request: ExecRequest, mark: str
    ) -> None:
        self._api = client.api
        self._container = container
        self._id = exec_id
        self._tty = request.tty
        self._mark = mark
        # not `exec_start`: its socket lacks what was read together with the headers
        self._response = self._api._post_json(
            self._api._url("/exec/{0}/start", exec_id),
            headers={"Connection": "Upgrade", "Upgrade": "tcp"},
            data={
                "Tty": request.tty,
                "Detach": False,
                # known since version 1.42 of the API; for an older one there is `resize`
                **({"ConsoleSize": [*terminal_size(request)]} if request.tty else {}),
            },
            stream=True,
        )
        raw = self._api._get_raw_response_socket(self._response)
        self._socket = getattr(raw, "_sock", raw)
        self._socket.settimeout(None)
        self._reader = self._response.raw._fp.fp
        self._stream, self._left = 1, 0

    def receive(self) -> tuple[int, bytes] | None:
        if self._tty:
            data = self._reader.read1(_CHUNK)
            return (1, data) if data else None
        while self._left == 0:
            header = self._reader.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None
            self._stream, self._left = _HEADER.unpack(header)
        data = self._reader.read1(min(self._left, _CHUNK))
        if not data:
            return None
        self._left -= len(data)
        return self._stream, data

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close_input(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as err:
            logger.debug("the end of the input could not be sent: %s", err)

    def resize(self, rows: int, columns: int) -> None:
        try:
            with translate_errors("resize a terminal"):
                self._api.exec_resize(self._id, height=rows, width=columns)
        except DockerRefused as err:  # it has ended
            logger.debug("%s", err)

    def signal(self, name: str) -> None:
        if self._tty:
            return
        with translate_errors(f"signal a command in container `{self._container[:12]}`"):
            made = self._api.exec_create(
                self._container, ["sh", "-c", signal_script(self._mark, name)]
            )
            self._api.exec_start(made["Id"])

    def close(self) -> None:
        """Closes the connection."""
        self._response.close()
