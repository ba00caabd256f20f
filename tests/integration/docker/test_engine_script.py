"""The script that starts a daemon, where one runs: it says what is there and makes it once."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.docker_engine import needs_docker

pytestmark = [
    *needs_docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run most commands of the script"),
]

SCRIPT = Path(__file__).parents[3] / "scripts/engines/docker"


def call(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )


def test_without_a_command_it_lists_them():
    done = call()
    assert done.returncode == 2
    for name in ("install", "up", "image", "registry", "status", "down"):
        assert f"docker {name} " in done.stderr


def test_what_is_there_is_not_made_again(docker_client, tmp_path):
    env = {"TORCHX_ENGINES_DIR": str(tmp_path)}
    before = {image.id for image in docker_client.images.list()}
    assert call("up", env=env).stdout.startswith("export DOCKER_HOST=")
    name = call("image", env=env).stdout.strip()
    assert docker_client.images.get(name).id in before
    status = call("status", env=env)
    assert status.returncode == 0
    assert name in status.stdout
    assert "not ours" in status.stdout
    assert call("down", env=env).returncode == 0  # ends only what it started: nothing
    assert docker_client.ping()


def test_what_it_cannot_do_is_told():
    done = call("image", "no-such-image")
    assert done.returncode == 1
    assert "there is no image `no-such-image`" in done.stderr
    done = call("up", env={"DOCKER_HOST": "tcp://127.0.0.1:1"})
    assert done.returncode == 1
    assert "nothing answers on tcp://127.0.0.1:1" in done.stderr


def test_a_daemon_that_is_just_ending_is_replaced(tmp_path):
    """On a socket of its own; the daemon that the other tests use goes on."""
    folder = tempfile.mkdtemp(prefix="torchx-docker-", dir="/var/tmp")  # not on a socket's length
    env = {
        "TORCHX_ENGINES_DIR": folder,
        "DOCKER_HOST": f"unix://{folder}/sock",
        "TORCHX_DOCKERD_ARGS": "--iptables=false --ip-masq=false --bridge=none",
    }
    try:
        first = call("up", env=env)
        if first.returncode:
            pytest.skip(f"no second daemon can be started here: {first.stderr[-300:]}")
        pid = Path(folder, "docker/dockerd.pid").read_text()
        os.kill(int(pid), signal.SIGTERM)
        second = call("up", env=env)
        assert second.returncode == 0, second.stderr
        assert call("status", env=env).returncode == 0
        assert Path(folder, "docker/dockerd.pid").read_text() != pid
    finally:
        call("down", env=env)
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            mount = line.split()[1]
            if mount.startswith(f"{folder}/"):
                subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(folder, ignore_errors=True)
