"""Fixtures for tests of local jobs."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from torchx.schedulers.local_scheduler import LocalScheduler, create_scheduler

from .jobs import LAUNCHER


@pytest.fixture
def scheduler() -> Iterator[LocalScheduler]:
    scheduler = create_scheduler("test")
    yield scheduler
    scheduler.close()


@pytest.fixture
def launch() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts a launcher in a process of its own; gives the process and the app's id."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, detach: bool = False) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, script, "detach" if detach else "attach"],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout
        handle = process.stdout.readline().strip()
        assert handle.startswith("local_cwd://"), handle
        return process, handle.rpartition("/")[2]

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
