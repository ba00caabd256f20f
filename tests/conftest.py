"""Keeps every test away from the user's files and settings, and finds what tests leave running."""

import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.docker_engine import docker_engine  # noqa: F401 - a fixture
from tests.left_out import SERIAL, LeftOut

TEST_RUN_VARIABLE = "TEST_RUN_ID"
"""Set for the whole run: a process that a test left behind has it in its environment."""

_LEFTOVER_GRACE_S = 10

NOWHERE = {
    "docker": ("DOCKER_HOST", "unix:///nonexistent/docker.sock"),
    "slurm": ("SLURM_CONF", "/dev/null"),
    "kubernetes": ("KUBECONFIG", "/nonexistent/kubeconfig"),
    "aws": ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
}
"""By marker, the variable that leads to an engine, and its value for tests that must not use it.

Slurm looks 60 times for a file that is missing, and refuses an empty one at once.
"""

# How fast an example is depends on what else the machine does: no test asks.
settings.register_profile("torchx", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("torchx")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeftOut(config))
    compile_once(config)


def compile_once(config: pytest.Config) -> None:
    """Keeps compiled files in a folder that goes away, if none are wanted beside the sources.

    Without any, each of the thousands of programs that tests start compiles all that it imports.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        folder = tempfile.mkdtemp(prefix="torchx-test-pycache-")
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """More workers than cores, as most tests wait; none for tests that are named one by one.

    Two cores compute for 65 % of the time with 8 workers and for 80 % with 12, where tests have to
    wait for each other.
    """
    if all("::" in arg for arg in config.args):
        return 0
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # pytest-xdist reads it
    return max(10, os.cpu_count() or 1)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Lets one worker run the tests that cannot run side by side."""
    for name in SERIAL:
        if item.get_closest_marker(name):
            item.add_marker(pytest.mark.xdist_group(name))
            return


@pytest.fixture(autouse=True)
def isolated(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Gives the test a home, a working directory and signal handlers of its own, and no engine."""
    folder = tmp_path_factory.getbasetemp() / "isolated" / str(next(_COUNTER))
    for name in ("home", "cwd"):
        (folder / name).mkdir(parents=True)
    for name in [*os.environ]:
        if name.startswith(("TORCHX", "AWS_")) or name in ("LOGLEVEL", "NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    for engine, (name, value) in NOWHERE.items():
        if request.node.get_closest_marker(engine) is None:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("TORCHX_HOME", str(folder / "home" / ".torchx"))
    monkeypatch.chdir(folder / "cwd")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    if "torchx.plugins" in sys.modules:
        sys.modules["torchx.plugins"].registry().clear()


@pytest.fixture(autouse=True, scope="session")
def signals_as_in_a_terminal() -> None:
    """In the background and under nohup, processes ignore signals that tests send them."""
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in defaults.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def nothing_left_running() -> Iterator[None]:
    """Fails the run if a process that a test started is alive at its end; Linux only."""
    run_id = uuid.uuid4().hex
    os.environ[TEST_RUN_VARIABLE] = run_id
    yield
    del os.environ[TEST_RUN_VARIABLE]
    deadline = time.monotonic() + _LEFTOVER_GRACE_S
    while (left := _processes_of(run_id)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        pytest.fail("tests left processes running:\n" + "\n".join(left.values()))


_COUNTER = itertools.count()


def _processes_of(run_id: str) -> dict[int, str]:
    """Living processes that inherited the id, each with its command line and its test."""
    mark = f"{TEST_RUN_VARIABLE}={run_id}".encode()
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            if pid == os.getpid() or mark not in (env := (entry / "environ").read_bytes()):
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended, or belongs to someone else
            continue
        if not command:  # a zombie: ended, and only its parent has not looked yet
            continue
        if "multiprocessing.resource_tracker" in command:  # ends with the process it serves, us
            continue
        test = [v for v in env.split(b"\0") if v.startswith(b"PYTEST_CURRENT_TEST=")]
        found[pid] = f"  {pid}: {command} {b' '.join(test).decode(errors='replace')}"
    return found
