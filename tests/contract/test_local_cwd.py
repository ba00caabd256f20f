"""``local_cwd`` keeps the contract of schedulers."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.contract.own_jobs import NoBackend
from tests.contract.trials import TRIALS
from torchx.schedulers.local_scheduler import create_scheduler
from torchx.specs.api import AppState
from torchx.testing.scheduler_suite import SchedulerContract

OPENED: list[str] = []
"""Records and lists of jobs that this process has opened."""


def note_opened(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and str(args[0]).endswith(("/job.json", "/local/index")):
        OPENED.append(str(args[0]))


sys.addaudithook(note_opened)


def local() -> Path:
    """Where local jobs are recorded."""
    return Path(os.environ["TORCHX_HOME"], "local")


class TestLocalCwd(NoBackend, SchedulerContract):
    no_backend = "local jobs are processes of this user on this machine"
    requires_resource = False
    trials = TRIALS
    timeout_s = 60
    # of a list: the jobs that have ended, and each one that runs
    # a job that is deleted while it runs is put into the list and then taken from it
    most_queries: ClassVar = {"describe": 1, "list": 2, "cancel": 2, "delete": 4, "log": 1}

    @pytest.fixture
    def scheduler_name(self):
        return "local_cwd"

    @pytest.fixture
    def scheduler(self):
        scheduler = create_scheduler("test")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self):
        scheduler = create_scheduler("other")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def opts(self):
        return {"grace_s": 3}

    # -- faults: there is one native call, the start of the supervisor ----------------------

    @pytest.fixture
    def refuse_submission(self, monkeypatch):
        @contextlib.contextmanager
        def refusing(after: int) -> Iterator[None]:
            with monkeypatch.context() as patched:
                if after == 0:
                    patched.setattr(sys, "executable", "/no/such/interpreter")
                yield

        return refusing

    @pytest.fixture
    def native_objects(self):
        def found() -> list[str]:
            folders = [local() / name for name in ("jobs", "active", "logs/test")]
            return [str(path) for folder in folders for path in folder.glob("*")]

        return found

    @pytest.fixture
    def submitted(self):
        return lambda app_id: (local() / "jobs" / app_id / "job.json").read_text()

    @pytest.fixture
    def queries(self):
        """Counts how often records and lists are read."""
        return lambda: len(OPENED)

    native_states = (
        ("SUCCEEDED", AppState.SUCCEEDED),
        ("FAILED", AppState.FAILED),
        ("CANCELLED", AppState.CANCELLED),
        ("EVAPORATED", AppState.UNKNOWN),
    )

    def state_of(self, native):
        local().mkdir(parents=True)
        (local() / "index").write_text(f"job-1\ttest\t{native}\t1\t2\tjob\n")
        (row,) = create_scheduler("test").list()
        (local() / "index").unlink()
        local().rmdir()
        return row.state


@pytest.mark.thorough
class TestLocalCwdDetached(TestLocalCwd):
    """The same for jobs that do not end with their launcher."""

    @pytest.fixture
    def opts(self):
        return {"grace_s": 3, "detach": True}
