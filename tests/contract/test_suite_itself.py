"""The suite finds schedulers that do not keep the contract."""

import subprocess
import sys
from pathlib import Path

import pytest

BROKEN = {
    "dryrun changes the app": (
        "def submit_dryrun(self, app, cfg):\n"
        "    app.roles[0].env['X'] = '1'\n"
        "    return super().submit_dryrun(app, cfg)",
        "test_dryrun_leaves_the_app_alone",
    ),
    "options are not checked": (
        "def submit_dryrun(self, app, cfg):\n    return super().submit_dryrun(app, {})",
        "test_an_unknown_option_is_refused",
    ),
    "args are joined by a shell": (
        "def _submit_dryrun(self, app, cfg):\n"
        "    info = super()._submit_dryrun(app, cfg)\n"
        "    for task in info.request.tasks:\n"
        "        task.argv = ['sh', '-c', ' '.join(task.argv)]\n"
        "    return info",
        "test_args_arrive_as_they_are",
    ),
    "cancel waits": (
        "def _cancel_existing(self, app_id):\n"
        "    self._jobs[app_id].request.grace_s = 3\n"
        "    self._jobs[app_id].close()",
        "test_cancel_does_not_wait_for_the_end",
    ),
    "failure is success": (
        "def describe(self, app_id):\n"
        "    found = super().describe(app_id)\n"
        "    if found and found.state is AppState.FAILED:\n"
        "        found.state = AppState.SUCCEEDED\n"
        "    return found",
        "test_a_job_that_ends_badly_fails",
    ),
    "an unknown app raises": (
        "def describe(self, app_id):\n    return super().describe(app_id) or {}[app_id]",
        "test_an_unknown_app_is_none",
    ),
    "following ends too early": (
        "def log_iter(self, *args, should_tail=False, **kwargs):\n"
        "    return super().log_iter(*args, **kwargs)",
        "test_following_gives_all_lines_to_the_last",
    ),
    "checks wait for the first line": (
        "def log_iter(self, *args, **kwargs):\n    yield from super().log_iter(*args, **kwargs)",
        "test_streams_are_apart_or_refused_at_the_call",
    ),
    "lines lose their newline": (
        "def log_iter(self, *args, **kwargs):\n"
        "    return map(str.rstrip, super().log_iter(*args, **kwargs))",
        "test_lines_are_whole_and_in_order",
    ),
    "a policy is dropped": (
        "def submit_dryrun(self, app, cfg):\n"
        "    for role in app.roles:\n"
        "        role.retry_policy = RetryPolicy.APPLICATION\n"
        "    return super().submit_dryrun(app, cfg)",
        "test_a_policy_that_is_not_declared_is_refused",
    ),
    "a declared feature is missing": (
        "features = SchedulerFeatures(separate_streams=True)",
        "test_streams_are_apart_or_refused_at_the_call",
    ),
}
HEAD = """\
import pytest
from fake_scheduler_plugin import *
from torchx.testing.scheduler_suite import SchedulerContract
"""
CASE = """\
class Scheduler{i}(FakeScheduler):
{body}

class Test{i}(SchedulerContract):
    timeout_s = 20

    @pytest.fixture
    def scheduler(self):
        scheduler = Scheduler{i}("test")
        yield scheduler
        scheduler.close()

"""


@pytest.fixture
def run_suite(plugin_dir, monkeypatch):
    """Runs tests of the suite in a pytest of their own; gives its output."""
    monkeypatch.setenv("PYTHONPATH", str(plugin_dir))

    def run(text: str, *args: str) -> str:
        path = Path("test_broken.py")
        path.write_text(HEAD + text)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *args]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=280, check=False
        ).stdout

    return run


@pytest.mark.timeout(300)
def test_what_is_broken_is_found(run_suite):
    text, nodes = "", []
    for i, (body, test) in enumerate(BROKEN.values()):
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        text += CASE.format(i=i, body=indented)
        nodes.append(f"test_broken.py::Test{i}::{test}")
    out = run_suite(text, *nodes)
    missed = [name for name, node in zip(BROKEN, nodes, strict=True) if f"FAILED {node}" not in out]
    assert missed == [], out


def test_failed_asserts_of_the_suite_show_their_values(run_suite):
    body = (
        "    def describe(self, app_id):\n"
        "        return DescribeAppResponse('other', AppState.FAILED)"
    )
    node = "test_broken.py::Test0::test_a_job_that_ends_well_succeeds"
    out = run_suite(CASE.format(i=0, body=body), node)
    assert "assert 'other' == 'contract-" in out


def test_a_class_without_scheduler_says_what_is_missing(run_suite):
    out = run_suite("class TestNothing(SchedulerContract): pass", "-x", "test_broken.py")
    assert "`TestNothing` must define a fixture `scheduler`" in out


def test_without_pytest_it_says_how_to_install_it():
    code = "import sys; sys.modules['pytest'] = None; import torchx.testing.scheduler_suite"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'torchx[test]'" in done.stderr
