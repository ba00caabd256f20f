"""Commands in pods and connections to their ports, with a server of websockets."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.schedulers.kube.web_sockets import Conversation, PodServer
from torchx.errors import TorchXError
from torchx.schedulers._core.executing import ExecRequest
from torchx.schedulers._core.ports import ForwardedPort
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.config import Cluster, Config, User
from torchx.schedulers._kube.errors import AnswerLost, Forbidden
from torchx.schedulers._kube.pods import PodPort, execute, exit_code
from torchx.schedulers._kube.transport import HttpTransport

SUCCESS = json.dumps({"status": "Success"}).encode()


def failure(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps({"status": "Failure", "details": {"causes": causes}}).encode()


class Files:
    """What a command reads and writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "in").write_bytes(b"")
        self.fds: list[int] = []

    def request(
        self, *command: str, given: "bytes | None" = None, tty: bool = False
    ) -> ExecRequest:
        flags = os.O_WRONLY | os.O_CREAT
        out, err = (os.open(self._folder / name, flags, 0o600) for name in ("out", "err"))
        stdin = None
        self.fds += [out, err]
        if given is not None:
            (self._folder / "in").write_bytes(given)
            stdin = os.open(self._folder / "in", os.O_RDONLY)
            self.fds.append(stdin)
        return ExecRequest(command, tty, stdin, out, err)

    def read(self) -> tuple[bytes, bytes]:
        return (self._folder / "out").read_bytes(), (self._folder / "err").read_bytes()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    files = Files(tmp_path)
    yield files
    for fd in files.fds:
        os.close(fd)


def client(server: PodServer) -> KubeClient:
    config = Config(Cluster(server.url, "c"), User("me", token="secret"))
    return KubeClient(HttpTransport(config), "me")


def test_output_comes_on_its_streams_and_the_exit_code_at_the_end(files: Files) -> None:
    seen: list[Conversation] = []

    def talk(said: Conversation) -> None:
        seen.append(said)
        said.ping()
        said.send(1, b"")
        said.send(1, b"out")
        said.send(2, b"err")
        said.send(3, failure(7))

    server = PodServer(talk)
    assert execute(client(server), "ns", "pod-1", "main", files.request("a b", "c&d")) == 7
    server.close()
    assert files.read() == (b"out", b"err")
    assert seen[0].path == "/api/v1/namespaces/ns/pods/pod-1/exec"
    query = seen[0].query
    words = [value for name, value in query if name == "command"]
    assert words[0] == "env"
    assert words[1].startswith("TORCHX_EXEC=")
    assert words[2:] == ["a b", "c&d"]
    assert ("stdin", "true") not in query
    assert ("container", "main") in query
    assert "Authorization: Bearer secret" in server.heads[0]


def test_input_is_sent_and_its_end_is_told(files: Files) -> None:
    got: list[bytes] = []

    def talk(said: Conversation) -> None:
        while (message := said.receive()) is not None:
            got.append(message)
            if message[0] == 255:
                break
        said.send(3, SUCCESS)

    server = PodServer(talk)
    assert execute(client(server), "ns", "p", "c", files.request("cat", given=b"x" * 100_000)) == 0
    server.close()
    assert got[-1] == bytes([255, 0])
    assert b"".join(message[1:] for message in got[:-1]) == b"x" * 100_000
    assert {message[0] for message in got[:-1]} == {0}


def test_an_older_cluster_is_not_told_of_the_end_of_the_input(files: Files) -> None:
    got: list[bytes | None] = []

    def talk(said: Conversation) -> None:
        got.append(said.receive())
        said.send(3, SUCCESS)

    server = PodServer(talk, protocol="v4.channel.k8s.io")
    assert execute(client(server), "ns", "p", "c", files.request("cat", given=b"abc")) == 0
    server.close()
    assert got == [b"\0abc"]


def test_a_terminal_gets_its_size_first(files: Files) -> None:
    got: list[bytes | None] = []

    def talk(said: Conversation) -> None:
        got.append(said.receive())
        said.send(1, b"$ ")
        said.send(3, SUCCESS)

    server = PodServer(talk)
    assert execute(client(server), "ns", "p", "c", files.request("sh", tty=True)) == 0
    server.close()
    assert got == [b'\x04{"Width": 80, "Height": 24}']
    assert files.read()[0] == b"$ "


def test_a_refusal_is_told_in_the_words_of_the_server(files: Files) -> None:
    status = {"kind": "Status", "message": 'pods "p" is forbidden', "reason": "Forbidden"}
    server = PodServer((403, json.dumps({**status, "code": 403}).encode()))
    with pytest.raises(Forbidden, match="is forbidden"):
        execute(client(server), "ns", "p", "c", files.request("ls"))
    server.close()


def test_a_connection_that_breaks_off_is_no_success(files: Files) -> None:
    server = PodServer(lambda said: said.send(1, b"half"))
    with pytest.raises(AnswerLost, match="broke off"):
        execute(client(server), "ns", "p", "c", files.request("ls"))
    server.close()
    assert files.read()[0] == b"half"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({"status": "Success"}, (0, "")),
        ({"status": "Failure", "message": "exec: executable file not found in $PATH"}, 127),
        ({"status": "Failure", "message": "container not running"}, 1),
    ],
)
def test_what_the_end_of_a_command_means(outcome: object, expected: object) -> None:
    code, words = exit_code(json.dumps(outcome).encode())
    assert (code if words else (code, words)) == expected


def test_a_port_is_carried_both_ways() -> None:
    def talk(said: Conversation) -> None:
        said.send(0, b"\x50\0")
        said.send(1, b"\x50\0")
        asked = said.receive()
        said.send(0, b"you said " + (asked or b"")[1:])

    server = PodServer(talk)
    port = PodPort(client(server), "ns", "p", 80)
    port.send(b"hello")
    assert port.receive() == b"you said hello"
    assert port.receive() == b""
    port.close()
    server.close()


def test_a_port_that_nobody_listens_on_is_told() -> None:
    def talk(said: Conversation) -> None:
        said.send(0, b"\x50\0")
        said.send(1, b"\x50\0")
        said.send(1, b"connection refused")

    server = PodServer(talk)
    port = PodPort(client(server), "ns", "p", 80)
    with pytest.raises(TorchXError, match="connection refused"):
        port.receive()
    port.close()
    server.close()


def test_connections_to_a_forwarded_port_are_ended_by_either_side() -> None:
    import socket

    def echo(said: Conversation) -> None:
        said.send(0, b"\x50\0")
        message = said.receive()
        said.send(0, (message or b"")[1:])

    server = PodServer(echo, echo)
    kube = client(server)
    forwarded = ForwardedPort(0, "127.0.0.1", lambda: PodPort(kube, "ns", "p", 80))
    forwarded.start()
    for word in (b"one", b"two"):
        with socket.create_connection(("127.0.0.1", forwarded.number), timeout=10) as here:
            here.sendall(word)
            assert here.recv(100) == word
            assert here.recv(100) == b""
    forwarded.close()
    server.close()
