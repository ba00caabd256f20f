"""The daemon goes away and comes back while a job is watched; a launcher is killed."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.docker_engine import PYTHON_IMAGE, image_id, needs_docker
from tests.docker_proxy import DAEMON, DockerProxy
from torchx.schedulers.docker_scheduler import LABEL_APP_ID, create_scheduler
from torchx.specs import AppDef, AppState, Resource, Role

pytestmark = needs_docker

TORCHX = [sys.executable, "-m", "torchx.cli.main"]
RUN = [*TORCHX, "run", "-s", "local_docker", "--workspace="]
COUNT = "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 1; done"


@pytest.fixture
def proxy(tmp_path, docker_client):
    with DockerProxy(tmp_path / "docker.sock") as proxy:
        yield proxy


@pytest.fixture
def spawn():
    """Starts a command, which is ended after the test."""
    running = []

    def start(*args, **env):
        process = subprocess.Popen(
            args,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def started(apps, proxy, spawn):
    """Starts a command behind the proxy; its job is removed after the test, as all of `apps`."""
    return lambda *args: spawn(*args, DOCKER_HOST=proxy.url)


def handle_of(process, apps):
    handle = process.stdout.readline().strip()
    assert handle, process.stderr.read()
    apps.started.append(handle.rpartition("/")[2])
    return handle


def until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def interrupt_after(stream, text, proxy, away_s=3):
    """Takes the daemon away once a text was printed; gives all that was printed until then."""
    seen = ""
    while text not in seen:
        line = stream.readline()
        assert line, seen
        seen += line
    with proxy.away():
        time.sleep(away_s)  # long enough for whoever watches to notice
    return seen


def lines_of(text):
    return [line[line.index("line ") :] for line in text.splitlines() if "line " in line]


def test_a_run_that_watches_outlives_an_outage_and_says_so_once(apps, proxy, started):
    process = started(*RUN, "utils.sh", "--image", apps.image, "--", "sh", "-c", COUNT)
    handle_of(process, apps)
    err = interrupt_after(process.stderr, "line 2", proxy)
    err += process.stderr.read()
    assert process.wait(60) == 0, err
    assert lines_of(err) == [f"line {i}" for i in range(1, 9)]
    assert err.count("`local_docker` cannot be reached, trying again") == 1
    assert "are interrupted" not in err  # of the logs, which come from the same daemon
    assert err.count("`local_docker` answers again") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_follower_of_logs_outlives_an_outage_and_says_so_once(apps, proxy, started, replicas):
    app_id = apps.start(apps.role(COUNT, num_replicas=replicas))
    process = started(*TORCHX, "log", "-t", f"local_docker:///{app_id}")
    out = interrupt_after(process.stdout, "line 2", proxy)
    # not by `communicate`, which does not see what `readline` has read ahead
    rest, err = process.stdout.read(), process.stderr.read()
    assert process.wait(60) == 0, err
    for k in range(replicas):
        mine = [line for line in (out + rest).splitlines() if f"/{k} " in line]
        assert lines_of("\n".join(mine)) == [f"line {i}" for i in range(1, 9)]
    assert err.count("are interrupted, trying again") == 1
    assert "Traceback" not in err


def test_ctrl_c_leaves_the_containers_alone_and_says_so(apps, proxy, started):
    process = started(*RUN, "utils.sh", "--image", apps.image, "--", "sh", "-c", "sleep 3600")
    handle = handle_of(process, apps)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"job `{handle}` keeps running" in err
    assert f"torchx cancel {handle}" in err
    assert apps.scheduler.describe(apps.started[-1]).state is AppState.RUNNING


# -- failures of one of several -------------------------------------------------------------------


def two_of_which_one_fails(image, *flags):
    script = 'if [ "${HOSTNAME##*-}" = 0 ]; then exit 7; fi; exec sleep 3600'
    more = ["--num_replicas", "2", "--image", image, "--", "sh", "-c", script]
    return [*RUN, *flags, "utils.sh", *more]


def test_a_run_ends_the_others_when_one_fails_and_says_so(apps, started):
    process = started(*two_of_which_one_fails(apps.image))
    handle_of(process, apps)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 1
    assert err.count("replica sh/0 exited with code 7; ending the other replicas") == 1
    found = apps.scheduler.describe(apps.started[-1])
    states = [replica.state for replica in found.roles_statuses[0].replicas]
    assert (found.state, states) == (AppState.FAILED, [AppState.FAILED, AppState.CANCELLED])


def test_a_run_that_is_not_watched_says_that_nobody_ends_the_others(apps, started):
    for flags, told in ((["--detach"], 1), (["--detach", "-cfg", "on_failure=wait"], 0)):
        process = started(*two_of_which_one_fails(apps.image, *flags))
        handle_of(process, apps)
        _, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        assert err.count("when a replica fails, nobody ends the others") == told
        app_id = apps.started[-1]
        until(lambda app_id=app_id: apps.scheduler.failed_replicas(app_id))
        found = apps.scheduler.describe(app_id)
        assert (found.state, found.msg) == (
            AppState.RUNNING,
            "replica sh/0 exited with code 7",
        )


def test_one_replica_has_no_others(apps, started):
    script = ["utils.sh", "--image", apps.image, "--", "sleep", "3600"]
    process = started(*RUN, "--detach", *script)
    handle_of(process, apps)
    assert "nobody ends the others" not in process.communicate(timeout=60)[1]


# -- a launcher that is killed --------------------------------------------------------------------


def test_a_launcher_that_is_killed_leaves_an_app_that_says_so_and_ends(apps):
    program = (
        "import sys; from torchx.schedulers.docker_scheduler import create_scheduler as c;"
        "from torchx.specs import *;"
        "r = Role('w', sys.argv[1], entrypoint='sleep', args=['3600'], num_replicas=20,"
        " resource=Resource(1, 0, 32));"
        "c('x').submit(AppDef('killed', [r]), {})"
    )

    def rows():
        found = apps.client.api.containers(all=True, filters={"label": LABEL_APP_ID})
        return [r for r in found if r["Labels"][LABEL_APP_ID].startswith("killed-")]

    launcher = subprocess.Popen([sys.executable, "-c", program, apps.image])
    try:
        until(lambda: any(r["State"] == "running" for r in rows()))
    finally:
        launcher.kill()
        launcher.wait()
    app_id = rows()[0]["Labels"][LABEL_APP_ID]
    apps.started.append(app_id)
    assert any(r["State"] == "created" for r in rows()), "the launcher was killed too late"
    found = apps.scheduler.describe(app_id)
    assert found.state is AppState.RUNNING
    assert "half-started" in found.msg
    assert f"`torchx delete local_docker:///{app_id}`" in found.msg
    while any(r["State"] == "running" for r in rows()):  # some were being started all the same
        for r in rows():
            if r["State"] == "running":
                apps.client.api.kill(r["Id"])
    assert apps.scheduler.describe(app_id).state is AppState.FAILED
    done = subprocess.run(
        [*TORCHX, "delete", f"local_docker:///{app_id}"], capture_output=True, check=False
    )
    assert done.returncode == 0
    assert rows() == []


# -- a daemon that is restarted -------------------------------------------------------------------


class OwnDaemon:
    """A daemon beside the one of this machine, with its own data, that may be restarted."""

    def __init__(self):
        # not below pytest's folders, which are removed while it may still have mounts there
        self._folder = folder = Path(tempfile.mkdtemp(prefix="torchx-dockerd-"))
        self.socket = f"{folder}/dockerd.sock"
        self.log = folder / "dockerd.log"
        self._args = [
            "dockerd", "--host", f"unix://{self.socket}", "--data-root", f"{folder}/data",
            "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid", "--live-restore",
            "--iptables=false", "--ip-masq=false", "--bridge=none",
        ]  # fmt: skip
        self._process = None

    def up(self):
        for _ in range(3):  # on a busy machine it does not wait long enough for its containerd
            with open(self.log, "ab") as log:
                self._process = subprocess.Popen(self._args, stdout=log, stderr=log)
            until(lambda: self._answers() or self._process.poll() is not None)
            if self._process.poll() is None:
                return
        pytest.skip(f"no second daemon can be started here: {self.log.read_text()[-300:]}")

    def down(self):
        self._process.terminate()
        self._process.wait(60)

    def _answers(self):
        return self.docker("version").returncode == 0

    def docker(self, *args, **more):
        command = ["docker", "-H", f"unix://{self.socket}", *args]
        return subprocess.run(command, capture_output=True, check=False, **more)

    def end(self):
        """Ends containers too, which outlive a daemon that is only stopped."""
        if self._process.poll() is None:
            ids = self.docker("ps", "-aq").stdout.decode().split()
            if ids:
                self.docker("rm", "-f", *ids)
            self.down()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([m for m in mounts if m.startswith(f"{self._folder}/")]):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self._folder, ignore_errors=True)


def name_of(client):
    """Name of the image with Python."""
    return client.images.get(image_id(client, PYTHON_IMAGE)).tags[0]


@pytest.fixture
def own_daemon(tmp_path, docker_client, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can start a daemon")
    daemon = OwnDaemon()
    try:
        daemon.up()
        image = name_of(docker_client)
        tar = tmp_path / "image.tar"
        subprocess.run(["docker", "-H", f"unix://{DAEMON}", "save", "-o", tar, image], check=True)
        assert daemon.docker("load", "-i", tar).returncode == 0
        monkeypatch.setenv("DOCKER_HOST", f"unix://{daemon.socket}")
        yield daemon
    finally:
        daemon.end()


def test_whoever_watches_outlives_a_restart_of_the_daemon(own_daemon, docker_client, spawn):
    scheduler = create_scheduler("test")
    role = Role("w", name_of(docker_client), entrypoint="sh", args=["-c", COUNT],
                num_replicas=2, resource=Resource(1, 0, 64))  # fmt: skip
    app_id = scheduler.submit(AppDef("restart", [role]), {})
    scheduler.close()
    handle = f"local_docker:///{app_id}"
    watching = [
        spawn(*TORCHX, *args)
        for args in (("log", "-t", handle), ("status", "--wait", "--exit-status", handle))
    ]
    assert "line" in watching[0].stdout.readline()
    own_daemon.down()
    time.sleep(3)  # long enough for whoever watches to notice
    own_daemon.up()
    logs = watching[0].stdout.read()
    log_err, status_err = (process.stderr.read() for process in watching)
    assert [process.wait(60) for process in watching] == [0, 0], log_err + status_err
    assert len(lines_of(logs)) == 15  # and one was read above
    assert log_err.count("are interrupted, trying again") == 1
    assert status_err.count("cannot be reached, trying again") == 1
