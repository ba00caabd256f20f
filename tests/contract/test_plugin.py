"""A scheduler that comes as a plugin keeps the contract and is found by its entry point."""

import contextlib
import errno
import os
import subprocess
import sys

import pytest

from tests.contract.own_jobs import NoBackend
from torchx.runner import get_runner
from torchx.schedulers import get_scheduler_factories
from torchx.specs import AppDef, AppState, Resource, Role
from torchx.testing.scheduler_suite import SchedulerContract


class PluginContract(NoBackend, SchedulerContract):
    """A scheduler in the memory of one process, so that no other one has to do with its jobs."""

    no_backend = "the plugin keeps its jobs in its own process"
    timeout_s = 60

    @pytest.fixture
    def scheduler_name(self):
        pytest.skip(f"jobs end with their launcher, whatever ends it: {self.no_backend}")

    @pytest.fixture
    def refuse_submission(self, scheduler, monkeypatch):
        """Lets no program start after so many."""
        started = iter(range(100))
        popen = subprocess.Popen

        @contextlib.contextmanager
        def refusing(after):
            def start(argv, **more):
                if next(started) >= after:
                    raise OSError(errno.EAGAIN, "refused by the test")
                return popen(argv, **more)

            with monkeypatch.context() as patched:
                patched.setattr(subprocess, "Popen", start)
                yield

        return refusing

    @pytest.fixture
    def native_objects(self, scheduler):
        return lambda: [*scheduler._jobs]

    @pytest.fixture
    def submitted(self, scheduler):
        return lambda app_id: repr(scheduler._jobs[app_id].request)

    @pytest.fixture
    def queries(self, scheduler, monkeypatch):
        """Counts the calls of what a plugin defines, but not of one by another."""
        count, depth = 0, 0

        def counting(hook):
            def counted(*args):
                nonlocal count, depth
                count += depth == 0
                depth += 1
                try:
                    return hook(*args)
                finally:
                    depth -= 1

            return counted

        for name in self.hooks:
            monkeypatch.setattr(scheduler, name, counting(getattr(scheduler, name)))
        return lambda: count

    def test_every_native_state_has_a_meaning_and_an_unknown_one_is_unknown(self):
        pytest.skip("the plugin has no states but those of TorchX")


class TestFakePlugin(PluginContract):
    hooks = ("look", "look_all", "end", "remove")

    @pytest.fixture
    def scheduler(self, plugin_dir):
        scheduler = get_scheduler_factories()["fake"]("test")
        yield scheduler
        scheduler.close()


class TestBarePlugin(PluginContract):
    """One that declares nothing, so that each test of a feature sees it refused."""

    hooks = ("describe", "list", "_cancel_existing")

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
