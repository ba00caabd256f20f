"""What ``torchx doctor`` finds about a Docker daemon."""

import os
import time
from datetime import datetime, timezone

import pytest

from torchx.schedulers.checkups import Configured
from torchx.schedulers.docker_scheduler import create_scheduler

INFO = {
    "ServerVersion": "27.1",
    "NCPU": 8,
    "MemTotal": 16 << 30,
    "Runtimes": {"runc": {}, "nvidia": {}},
}


def stamp(ahead_s=0.0):
    """The daemon's time as it tells it."""
    now = datetime.fromtimestamp(time.time() + ahead_s, timezone.utc)
    return now.isoformat().replace("+00:00", "789Z")


@pytest.fixture
def find(connected, tmp_path):
    """All findings about a daemon by the names of the checks: ``find(info, images)``."""

    def findings(info=None, images=None, tcp=False):
        given = {**INFO, "DockerRootDir": str(tmp_path), "SystemTime": stamp(), **(info or {})}
        routes = {
            ("GET", "/info"): (200, given),
            ("GET", "/images/here"): (200, {"Id": "sha256:1"}),
        }
        scheduler, _ = connected(routes, tcp)
        checks = scheduler.checkups(Configured(images=images or {}))
        return {check.name: check.check() for check in checks}

    return findings


def verdicts(found):
    return {name: finding.verdict.value for name, finding in found.items()}


def test_all_is_well(find):
    found = find(images={"here:1": ""})
    assert verdicts(found)["daemon"] == "ok"
    assert found["daemon"].text.startswith("Docker 27.1 at unix://")
    assert found["daemon"].text.endswith("8 CPUs, 16 GB")
    assert verdicts(found)["clock"] == "ok"
    assert verdicts(found)["GPUs"] == "ok"
    assert found["image"].text == "`here:1` is on this machine"
    assert verdicts(found)["space"] in ("ok", "warning")


def test_a_daemon_that_refuses(connected):
    scheduler, _ = connected({("GET", "/info"): (500, {"message": "out of order"})})
    found = {check.name: check.check() for check in scheduler.checkups()}
    assert verdicts(found) == {
        "daemon": "broken",
        "clock": "neutral",
        "space": "neutral",
        "GPUs": "neutral",
    }
    assert "out of order" in found["daemon"].text


def test_a_daemon_that_does_not_answer(connected):
    scheduler, _ = connected({("GET", "/info"): None})
    found = {check.name: check.check() for check in scheduler.checkups()}
    assert (verdicts(found)["daemon"], verdicts(found)["space"]) == ("broken", "neutral")
    assert found["daemon"].fix == "Start Docker, or set DOCKER_HOST"


def test_a_socket_without_a_daemon(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (check,) = create_scheduler("test").checkups()
    assert check.check().verdict.value == "neutral"
    assert check.check().text.startswith("not set up")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use any socket")
def test_a_socket_that_this_user_may_not_use(tmp_path, monkeypatch):
    path = tmp_path / "docker.sock"
    path.touch(0o000)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    (check,) = create_scheduler("test").checkups()
    assert (check.check().verdict.value, check.check().fix) == (
        "broken",
        "sudo usermod -aG docker $USER",
    )


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "text"),
    [(0, "ok", "agrees with"), (-3600, "warning", "that of the daemon is 60 min behind")],
)
def test_a_clock_that_is_wrong(find, ahead_s, verdict, text):
    found = find({"SystemTime": stamp(ahead_s)})["clock"]
    assert found.verdict.value == verdict
    assert text in found.text


def test_a_clock_that_is_not_told(find):
    assert find({"SystemTime": "soon"})["clock"].verdict.value == "neutral"


def test_a_disk_of_another_machine(find):
    assert find({"DockerRootDir": "/no/such/dir"})["space"].verdict.value == "neutral"


def test_a_daemon_without_gpus(find):
    assert find({"Runtimes": {"runc": {}}})["GPUs"].verdict.value == "neutral"


def test_an_image_that_is_nowhere(find):
    # nothing listens on that port, so that it cannot be asked for
    found = find(images={"localhost:1/team/none:1": "TORCHX_IMAGE"})["image"]
    assert found.verdict.value == "warning"
    assert "cannot tell whether" in found.text
