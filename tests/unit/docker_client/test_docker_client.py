"""The client of the Docker daemon that the scheduler and the workspaces share."""

import io
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("docker", reason="needs the Python package docker")

from tests.unit.schedulers.docker.fake_daemon import FakeDaemon
from torchx import _docker
from torchx.errors import BackendUnavailable, DockerNotInstalled, DockerRefused

IMAGE = ("GET", "/images")
PULL = ("POST", "/images/create")


@pytest.fixture
def connected(tmp_path, monkeypatch) -> Iterator[object]:
    """Connects to a daemon that answers as told."""
    opened = []

    def connect(routes):
        daemon = FakeDaemon(routes, tmp_path / "docker.sock").__enter__()
        monkeypatch.setenv("DOCKER_HOST", daemon.url)
        client = _docker.connect()
        opened.append((daemon, client))
        return client, daemon

    yield connect
    for daemon, client in opened:
        client.close()
        daemon.__exit__()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("unix://{}/none.sock", "No such file or directory"),
        ("tcp://localhost:port", "port"),
        ("nothing://x", "nothing"),
        ("tcp://", ""),
    ],
)
def test_a_daemon_that_does_not_answer_is_named_with_the_reason(
    tmp_path, monkeypatch, host, reason
):
    host = host.format(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(BackendUnavailable) as caught:
        _docker.connect()
    text = str(caught.value)
    assert text.startswith(f"the Docker daemon at {host} cannot be reached: ")
    assert reason in text
    assert text.endswith("; start Docker, or set DOCKER_HOST to where it runs")


def test_who_may_not_use_the_socket_is_told_what_to_do():
    found = _docker.unavailable(PermissionError(13, "Permission denied"), "list containers")
    assert "cannot list containers: the Docker daemon at " in str(found)
    assert str(found).endswith("as a member of the group `docker`")


def test_without_the_sdk_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(DockerNotInstalled, match=r"pip install 'torchx\[docker\]'") as e:
        _docker.connect()
    assert isinstance(e.value, ModuleNotFoundError)


def test_a_call_is_repeated_after_a_broken_connection(connected):
    answers = [None, (503, {"message": "starting"}), (200, {"Id": "sha256:1"})]
    client, daemon = connected({IMAGE: lambda *_: answers.pop(0)})
    assert _docker.image_record(client, "a") == {"Id": "sha256:1"}
    assert len(daemon.made("GET", "/images")) == 3


@pytest.mark.parametrize(
    ("answer", "kind", "calls"),
    [
        (None, BackendUnavailable, 3),
        ((503, {"message": "starting"}), DockerRefused, 3),
        ((500, {"message": "disk is full"}), DockerRefused, 1),
    ],
)
def test_what_stays_wrong_is_raised(connected, answer, kind, calls):
    client, daemon = connected({IMAGE: answer})
    with pytest.raises(kind, match="cannot inspect image `a`: "):
        _docker.image_record(client, "a")
    assert len(daemon.made("GET", "/images")) == calls


@pytest.mark.parametrize("status", [400, 404])
def test_an_image_that_is_not_there_or_cannot_be_has_no_record(connected, status):
    client, _ = connected({IMAGE: (status, {"message": "no"})})
    assert _docker.image_record(client, "a") is None


def test_a_refusal_keeps_its_status(connected):
    client, _ = connected({PULL: (403, {"message": "denied"})})
    with pytest.raises(DockerRefused, match="Docker cannot pull image `a:1`: ") as caught:
        _docker.pull(client, "a:1", None)
    assert caught.value.status == 403


def test_a_pull_may_show_its_progress_and_fail_in_the_middle(connected):
    lines = (b'{"status": "Pulling", "id": "l"}\r\n', b'{"error": "manifest unknown"}\r\n')
    client, _ = connected({PULL: (200, lines)})
    shown = io.StringIO()
    with pytest.raises(DockerRefused, match="cannot pull image `a`: manifest unknown"):
        _docker.pull(client, "a", shown)
    assert shown.getvalue() == "docker pull l: Pulling\n"


def test_parallel_calls_keep_their_order_and_leave_the_main_thread():
    found = _docker.in_parallel(lambda i: (i, threading.current_thread()), range(30))
    assert [i for i, _ in found] == [*range(30)]
    assert threading.main_thread() not in {thread for _, thread in found}
    assert _docker.in_parallel(str, []) == []


def test_the_first_failure_of_parallel_calls_is_raised():
    both_run = threading.Barrier(2)

    def call(i):
        if i in (3, 5):
            both_run.wait(60)
            raise KeyError(i)

    with pytest.raises(KeyError, match="3"):
        _docker.in_parallel(call, range(8))


def test_the_sdk_is_not_imported_with_the_package():
    script = "import sys, torchx._docker; print({'docker', 'requests'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert out.stdout == "set()\n"
