"""Commands in replicas on real backends, to which nothing stands in between."""

import contextlib
import os
import signal
import threading
import urllib.request

import pytest

from tests.contract.test_kubernetes import IMAGE, KUBECONFIG
from tests.contract.test_kubernetes import RecordingScheduler as RecordingKubernetes
from tests.contract.test_kubernetes_mcad import RecordingScheduler as RecordingMCAD
from tests.contract.test_local_docker import RecordingScheduler as RecordingDocker
from tests.docker_engine import image_with_init, needs_docker
from torchx.schedulers._core.ports import ForwardedPort
from torchx.schedulers._kube.calls import Selection
from torchx.schedulers._kube.connect import connect
from torchx.schedulers._kube.errors import MissingKind
from torchx.schedulers.api import ExecRequest
from torchx.schedulers.kubernetes_mcad_scheduler._client import KINDS
from torchx.testing._contract.inside import WAITS, InsideContract, Terminal, started
from torchx.testing._contract.jobs import WORKER


class RemoteInside(InsideContract):
    """What is carried over a connection, and so is ours to carry."""

    @pytest.fixture
    def replica(self, jobs):
        app_id = jobs.start(jobs.sh(WAITS))
        return started(jobs, app_id, WORKER, 0)

    def test_a_terminal_that_changes_its_size_tells_the_command(self, jobs, replica):
        shown = Terminal()
        waits = "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.1; done"

        def change():
            jobs.until(lambda: "ready" in shown.text)
            shown.resize(44, 99)
            os.kill(os.getpid(), signal.SIGWINCH)

        thread = threading.Thread(target=change)
        thread.start()
        request = ExecRequest(("sh", "-c", waits), True, shown.slave, shown.slave, shown.slave)
        code = jobs.scheduler.execute(*replica, request)
        thread.join()
        assert "44 99" in shown.close()
        assert code == 3

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 4), (signal.SIGTERM, 5)])
    def test_a_signal_reaches_a_command_without_a_terminal(
        self, jobs, replica, tmp_path, number, code
    ):
        script = "trap 'exit 4' INT; trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done"
        out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT, 0o600)

        def send():
            jobs.until(lambda: (tmp_path / "out").read_text())
            os.kill(os.getpid(), number)

        thread = threading.Thread(target=send)
        thread.start()
        request = ExecRequest(("sh", "-c", script), stdout=out, stderr=out)
        assert jobs.scheduler.execute(*replica, request) == code
        thread.join()
        os.close(out)


@pytest.fixture(scope="module")
def docker_client():
    import docker

    client = docker.from_env()
    yield client
    client.close()


class TestInsideDocker(RemoteInside):
    """On the daemon of this machine."""

    pytestmark = needs_docker

    @pytest.fixture
    def image(self, docker_client):
        return image_with_init(docker_client)

    @pytest.fixture
    def scheduler(self, docker_client):
        scheduler = RecordingDocker("test")
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()


@pytest.mark.kubernetes
class TestInsideKubernetes(RemoteInside):
    """On the cluster of ``TORCHX_TEST_KUBECONFIG``."""

    timeout_s = 100

    @pytest.fixture(autouse=True)
    def cluster(self, monkeypatch):
        if not KUBECONFIG:
            pytest.skip("set TORCHX_TEST_KUBECONFIG to the kubeconfig of a cluster for tests")
        monkeypatch.setenv("KUBECONFIG", KUBECONFIG)

    @pytest.fixture
    def image(self):
        return IMAGE

    @pytest.fixture
    def opts(self):
        return {"grace_s": 1}

    @pytest.fixture
    def scheduler(self):
        scheduler = RecordingKubernetes("test")
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()

    def test_a_port_leads_to_the_replica(self, jobs):
        code = (
            "import http.server, socketserver; print('started', flush=True);"
            "socketserver.TCPServer(('', 8123), http.server.SimpleHTTPRequestHandler)"
            ".serve_forever()"
        )
        app_id = jobs.start(jobs.python(code, num_replicas=2))
        looked = started(jobs, app_id, WORKER, 1)
        port = ForwardedPort(0, "127.0.0.1", lambda: jobs.scheduler.open_port(*looked, 8123))
        port.start()
        try:
            # the server prints a moment before it listens
            assert jobs.until(lambda: answer(port.number)) == 200
        finally:
            port.close()


@pytest.mark.kubernetes
class TestInsideAppWrappers(TestInsideKubernetes):
    """With an AppWrapper, of the generation that the cluster serves."""

    @pytest.fixture
    def opts(self, version):
        return {"grace_s": 1, "appwrapper_version": version}

    @pytest.fixture
    def version(self):
        client, _ = connect(KUBECONFIG)
        with contextlib.closing(client.transport):
            for version, kind in KINDS.items():
                with contextlib.suppress(MissingKind):
                    client.list_objects(Selection(kind, "default"))
                    return version
        pytest.skip("the cluster serves no AppWrappers")

    @pytest.fixture
    def scheduler(self):
        scheduler = RecordingMCAD("test")
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()


def answer(port):
    """Status of a page there; ``None`` if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/", timeout=30) as page:
            return page.status
    except OSError:
        return None
