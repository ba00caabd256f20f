"""Fixtures of the tests on a real cluster."""

import time

import pytest

from tests.slurm_cluster import slurm_cluster, slurm_conf  # noqa: F401 - fixtures
from torchx.schedulers.slurm_scheduler import create_scheduler
from torchx.specs import AppDef, Role, is_terminal


class Cluster:
    """Submits jobs, waits for them, and ends what is left of them."""

    def __init__(self) -> None:
        self.scheduler = create_scheduler("test")
        self.started: list[str] = []

    def start(self, *roles: Role, **cfg: object) -> str:
        app_id = self.scheduler.submit(AppDef("itest", [*roles]), {"partition": "all", **cfg})
        self.started.append(app_id)
        return app_id

    def describe(self, app_id: str):
        found = self.scheduler.describe(app_id)
        assert found is not None
        return found

    def until(self, condition, timeout_s: float = 60):
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            assert time.monotonic() < deadline, f"did not happen within {timeout_s} s"
            time.sleep(0.1)
        return value

    def end(self, app_id: str, timeout_s: float = 90):
        def ended():
            found = self.describe(app_id)
            if is_terminal(found.state):
                return found
            self.scheduler.wait_for_change(app_id, 1)
            return None

        return self.until(ended, timeout_s)

    def run(self, *roles: Role, **cfg: object):
        app_id = self.start(*roles, **cfg)
        return app_id, self.end(app_id)

    def lines(self, app_id: str, role: str = "r", k: int = 0, **more: object) -> list[str]:
        return [*self.scheduler.log_iter(app_id, role, k, **more)]

    def clean_up(self) -> None:
        for app_id in self.started:
            self.scheduler.cancel(app_id)
        for app_id in self.started:
            self.end(app_id)


@pytest.fixture
def cluster(slurm_cluster):  # noqa: F811 - the fixture
    cluster = Cluster()
    yield cluster
    cluster.clean_up()


def sh(script: str, name: str = "r", **more: object) -> Role:
    """A role that runs a shell script, with no macros in it."""
    return Role(name, "", entrypoint="sh", args=["-c", script.replace("$", "$$")], **more)
