"""The cause of a failure of a local job, from its journal and what it printed."""

import json

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers.local_scheduler._causes import RULES
from torchx.schedulers.local_scheduler._record import JobRecord
from torchx.schedulers.local_scheduler._states import parse_journal, snapshot

REAL = "recorded, this scheduler"
CUDA = "https://pytorch.org/docs/stable/notes/cuda.html"
SHM = "https://pytorch.org/docs/stable/multiprocessing.html"
TRACE = 'Traceback (most recent call last):\n  File "/app/train.py", line 41, in step\n'
OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"

CASES = [
    Case("app-error", REAL, 3, "one\ntwo\n"),
    Case("app-error", REAL, 1, TRACE + "ValueError: loss is NaN\n"),
    Case("app-error", REAL, -11),
    Case("app-error", REAL, -6, "free(): invalid pointer\n"),
    Case("killed", REAL, -9),
    Case("killed", REAL, -15),
    Case("time-limit", "https://man7.org/linux/man-pages/man2/getrlimit.2.html", -24),
    Case("disk-full", "https://man7.org/linux/man-pages/man2/getrlimit.2.html", -25),
    Case("out-of-memory", CUDA, 1, TRACE + OOM),
    Case("out-of-memory", REAL, 1, TRACE + "MemoryError\n"),
    Case("out-of-memory", REAL, -6, "terminate called after throwing an instance of 'std::bad_alloc'\n"),
    Case("out-of-memory", SHM, 1, "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.\n"),
    Case("disk-full", REAL, 1, TRACE + "OSError: [Errno 28] No space left on device\n"),
    Case("app-error", REAL, 1, TRACE + "ModuleNotFoundError: No module named 'einops'\n"),
    Case("app-error", REAL, 2, "python3: can't open file '/app/trian.py': [Errno 2] No such file\n"),
    Case("app-error", REAL, 1, TRACE + "OSError: [Errno 98] Address already in use\n"),
    Case("launch-failed", REAL, 127, "sh: 1: trian: not found\n"),
    Case("launch-failed", REAL, 126, "sh: 1: ./train.sh: Permission denied\n"),
    Case("app-error", REAL, 127, "the answer was 127\n"),
    Case("app-error", "https://docs.pytorch.org/docs/stable/distributed.html", 1,
         "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3) ran for 600000 ms\n"),
    Case("none", REAL, 0),
]  # fmt: skip

MESSAGES = [
    ("killed", "the process that supervised this job (pid 7) was killed; its replicas were ended"),
    ("launch-failed", "a restart failed: no process could be made"),
    ("disk-full", "the logs could not be written: No space left on device"),
    ("unknown", "something else"),
]
DATA = {
    "name": "job", "session": "torchx", "host": "me", "log_dir": "/logs", "created_ns": 1,
    "grace_s": 1, "ends_on_failure": True,
    "roles": [{"name": "worker", "dirs": ["/logs/0"], "env": {}, "args": ["x"], "vary": {}}],
}  # fmt: skip


def of_journal(*events: list[object]) -> AppSnapshot:
    text = "".join(json.dumps(event) + "\n" for event in events)
    return snapshot(JobRecord("job-x1", "/jobs/job-x1", DATA), parse_journal(text.encode()), {})


def of_code(code: int) -> AppSnapshot:
    state = "FAILED" if code else "SUCCEEDED"
    start, end = ["start", 1, 0, 0, 0, 7, 7], ["exit", 2, 0, 0, 0, code, 0]
    return of_journal(start, end, ["state", 3, state, ""])


def test_there_are_enough_cases() -> None:
    assert len(CASES) + len(MESSAGES) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.native}-{case.cause}")
def test_how_replicas_end(case: Case) -> None:
    check(case, of_code, RULES)


@pytest.mark.parametrize(("cause", "message"), MESSAGES)
def test_what_the_supervisor_says(cause: str, message: str) -> None:
    case = Case(cause, REAL, ["state", 3, "FAILED", message])
    check(case, lambda event: of_journal(["start", 1, 0, 0, 0, 7, 7], event), RULES)


def test_a_pause_before_a_retry() -> None:
    restart = ["restart", 3, "REPLICA", 0, 0, 1, 2000]
    events = [["start", 1, 0, 0, 0, 7, 7], ["exit", 2, 0, 0, 0, 3, 0], restart]
    check(Case("retrying", REAL, events), lambda found: of_journal(*found), RULES)
