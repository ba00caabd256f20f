"""One verb, one question: how often Slurm is asked, whatever the number of replicas."""

import ast
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import torchx.schedulers.slurm_scheduler as slurm
from torchx.runner import Runner, get_runner
from torchx.schedulers.slurm_scheduler import _client, create_scheduler
from torchx.specs import AppDef, AppState, Role

from . import samples

HANDLE = "slurm://torchx/9"


class App:
    """A job of one role that runs, watched by a process that did not submit it."""

    def __init__(self, fake_slurm, replicas: int) -> None:
        self.fake_slurm = fake_slurm
        fake_slurm.answer("sbatch", "9\n")
        role = Role("w", "", entrypoint="true", num_replicas=replicas)
        create_scheduler("t").submit(AppDef("train", [role]), {})
        self.mark = fake_slurm.calls("sbatch")[-1][-1]
        self.notes = Path(f".torchx-slurm-{os.getuid()}") / f"9-{self.mark.split(':')[1]}"
        self.notes.mkdir(parents=True)
        (self.notes / "hosts-0-0").write_text("\n".join(f"n{k}" for k in range(replicas)))
        for k in range(replicas):
            Path(f"slurm-9-w-{k}.out").write_text("line\n")
        self.answer("RUNNING")
        fake_slurm.answer("sacct", samples.SACCT_HEADER)
        fake_slurm.answer("scancel")
        fake_slurm.calls_file.unlink()

    def answer(self, native: str) -> None:
        job = samples.job_24_11(
            9,
            "w-0",
            native,
            command=f"/s.sh {self.mark}",
            current_working_directory=os.getcwd(),
            user_name="",
        )
        self.fake_slurm.answer("squeue", samples.squeue(job))

    def calls(self) -> dict[str, int]:
        names = [call[0] for call in self.fake_slurm.calls()]
        return {name: names.count(name) for name in names}


def read_all(runner: Runner) -> None:
    for block in runner.log_blocks(HANDLE):
        assert block.text == "line\n"


VERBS: dict[str, tuple[Callable[[Runner], object], dict[str, int]]] = {
    "status": (lambda r: r.status(HANDLE), {"squeue": 1}),
    "describe": (lambda r: r.describe(HANDLE), {"squeue": 1}),
    "list": (lambda r: r.list("slurm"), {"squeue": 1, "sacct": 1}),
    "cancel": (lambda r: r.cancel(HANDLE), {"squeue": 1, "scancel": 1}),
    "delete": (lambda r: r.delete(HANDLE), {"squeue": 1, "scancel": 1}),
    "log": (read_all, {}),
    "failed": (lambda r: r.failed_replicas(HANDLE), {"squeue": 1}),
}


@pytest.mark.parametrize("replicas", [3, 300])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_asks_once_whatever_the_number_of_replicas(fake_slurm, verb, replicas):
    app = App(fake_slurm, replicas)
    call, expected = VERBS[verb]
    with get_runner() as runner:
        call(runner)
        calls = app.calls()
    if verb == "log":  # the runner may ask whether the app is known
        assert calls in ({}, {"squeue": 1})
    else:
        assert calls == expected


SLOW = """\
#!/bin/sh
# Takes a second: it is not asked again before twenty of them are over.
echo squeue >>{calls}
sleep 1
cat {folder}/squeue.out
"""


def test_the_end_that_a_job_noted_is_reason_to_ask_at_once(fake_slurm):
    app = App(fake_slurm, 1)
    fake_slurm.program("squeue", SLOW.replace("{folder}", str(fake_slurm.folder)))
    scheduler = create_scheduler("t")
    assert scheduler.describe("9").state is AppState.RUNNING
    app.answer("COMPLETED")
    assert scheduler.describe("9").state is AppState.RUNNING, "the answer at hand is used"
    time.sleep(0.01)  # the clock of the file system is coarser
    (app.notes / "exit-0-0-0-0").touch()
    (app.notes / "end-0-0").touch()
    assert scheduler.describe("9").state is AppState.SUCCEEDED
    assert app.calls() == {"squeue": 2}
    assert _client.LOAD_FACTOR > 2


PURE = ("_job", "_macros", "_options", "_parse", "_request", "_script", "_states")
IMPURE = {"os", "subprocess", "time", "socket", "threading", "tempfile", "_client", "_notes"}


@pytest.mark.parametrize("module", PURE)
def test_what_decides_does_nothing(module):
    path = Path(slurm.__file__).with_name(f"{module}.py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} if node.module is None else set()
            found |= {(node.module or "").partition(".")[0], *names}
    assert not found & IMPURE
