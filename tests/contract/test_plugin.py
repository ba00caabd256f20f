"""A scheduler that comes as a plugin keeps the contract and is found by its entry point."""

import os
import subprocess
import sys

import pytest

from torchx.runner import get_runner
from torchx.schedulers import get_scheduler_factories
from torchx.specs import AppDef, AppState, Resource, Role
from torchx.testing.scheduler_suite import SchedulerContract


class TestFakePlugin(SchedulerContract):
    timeout_s = 30

    @pytest.fixture
    def scheduler(self, plugin_dir):
        scheduler = get_scheduler_factories()["fake"]("test")
        yield scheduler
        scheduler.close()


class TestBarePlugin(SchedulerContract):
    """One that declares nothing, so that each test of a feature sees it refused."""

    timeout_s = 30

    @pytest.fixture
    def scheduler(self, plugin_dir):
        scheduler = get_scheduler_factories()["bare"]("test")
        yield scheduler
        scheduler.close()


def test_the_runner_runs_an_app_on_the_plugin(plugin_dir):
    app = AppDef(
        "hi", [Role("r", "", entrypoint="echo", args=["hello"], resource=Resource(1, 0, 1))]
    )
    with get_runner() as runner:
        handle = runner.run(app, "fake", {"queue": "fast"})
        assert handle.startswith("fake://torchx/hi-")
        status = runner.wait(handle, wait_interval=0.05)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        assert list(runner.log_lines(handle, "r")) == ["hello\n"]
        assert [row.app_handle for row in runner.list("fake")] == [handle]


def test_the_command_line_runs_an_app_on_the_plugin(plugin_dir):
    done = subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", "run", "-s", "fake", "utils.echo", "--msg", "hi"],
        env={**os.environ, "PYTHONPATH": str(plugin_dir)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fake://torchx/echo-")
