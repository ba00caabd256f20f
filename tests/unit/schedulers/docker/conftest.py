"""Schedulers that talk to fake daemons."""

import pytest

from tests.unit.schedulers.docker.fake_daemon import FakeDaemon
from torchx.schedulers.docker_scheduler import create_scheduler


@pytest.fixture
def connected(tmp_path, monkeypatch):
    """Makes a scheduler that talks to a fake daemon."""
    daemons = []
    schedulers = []

    def connect(routes, tcp=False):
        path = None if tcp else tmp_path / f"docker{len(daemons)}.sock"
        daemon = FakeDaemon(routes, path).__enter__()
        daemons.append(daemon)
        monkeypatch.setenv("DOCKER_HOST", daemon.url)
        schedulers.append(create_scheduler("test"))
        return schedulers[-1], daemon

    yield connect
    for scheduler in schedulers:
        scheduler.close()
    for daemon in daemons:
        daemon.__exit__()
