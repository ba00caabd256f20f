"""The cause of a failure of a local job, from its journal and what it printed."""

import json

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, INVENTED, Case, check
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers.local_scheduler._causes import RULES
from torchx.schedulers.local_scheduler._record import JobRecord
from torchx.schedulers.local_scheduler._states import parse_journal, snapshot

REAL = "recorded, this scheduler"
CUDA = "https://github.com/pytorch/pytorch/issues/16417"
SHM = "https://github.com/pytorch/pytorch/blob/03d4ef67/torch/csrc/DataLoader.cpp"
GLIBC = "https://github.com/bminor/glibc/blob/04277e02/elf/dl-error-skeleton.c"
NCCL = "https://github.com/pytorch/pytorch/issues/118369"
SIGNALS = "src/torchx/schedulers/_core/causes.py"
SUPERVISOR = "src/torchx/schedulers/local_scheduler/_supervise/{}.py"
TRACE = 'Traceback (most recent call last):\n  File "/app/train.py", line 41, in step\n'
OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"

CASES = [
    Case("app-error", REAL, 3, "one\ntwo\n"),
    Case("app-error", REAL, 1, TRACE + "ValueError: loss is NaN\n"),
    Case("app-error", REAL, -11),
    Case("app-error", REAL, -6, "free(): invalid pointer\n"),
    Case("killed", REAL, -9),
    Case("killed", REAL, -15),
    Case("time-limit", SIGNALS, -24),
    Case("disk-full", SIGNALS, -25),
    Case("out-of-memory", CUDA, 1, TRACE + OOM),
    Case("out-of-memory", REAL, 1, TRACE + "MemoryError\n"),
    Case("out-of-memory", REAL, -6, "terminate called after throwing an instance of 'std::bad_alloc'\n"),
    Case("out-of-memory", SHM, 1, "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient"
         " shared memory (shm).\n"),
    Case("out-of-memory", SHM, 1, TRACE + "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is"
         " possible that dataloader's workers are out of shared memory.\n"),
    Case("app-error", SHM, 1, TRACE + "RuntimeError: DataLoader worker (pid 7) exited unexpectedly with exit code 1.\n"),
    Case("disk-full", REAL, 1, TRACE + "OSError: [Errno 28] No space left on device\n"),
    Case("app-error", REAL, 1, TRACE + "ModuleNotFoundError: No module named 'einops'\n"),
    Case("app-error", REAL, 2, "python3: can't open file '/app/trian.py': [Errno 2] No such file\n"),
    Case("app-error", REAL, 1, TRACE + "OSError: [Errno 98] Address already in use\n"),
    Case("launch-failed", REAL, 127, "sh: 1: trian: not found\n"),
    Case("launch-failed", REAL, 126, "sh: 1: ./train.sh: Permission denied\n"),
    Case("app-error", REAL, 127, "the answer was 127\n"),
    Case("launch-failed", GLIBC, 127, "train: error while loading shared libraries: libfoo.so.1: cannot open shared object file:"
         " No such file or directory\n"),
    Case("app-error", NCCL, 1,
         "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3) ran for 600000 ms\n"),
    Case("none", REAL, 0),
    Case("app-error", INVENTED, 1, "WARNING CUDA out of memory, retrying with half the batch\n" + TRACE + "KeyError: 'oom'\n"),
    Case("app-error", INVENTED, 1, "INFO the oom-killer is disabled; No space left on device: retried\nAssertionFailed\n"),
    Case("app-error", INVENTED, 1, TRACE + "ValueError: no log line may have 'CUDA out of memory' in it\n"),
    Case("app-error", INVENTED, 1, "memory: MemoryErrors are 0; Address already in use: ignored\n"),
    Case("killed", INVENTED, -9, "OOM guard: on\nquota exceeded, evicted node preempted\n"),
    Case("app-error", INVENTED, 126, "the answer was Permission\n"),
]  # fmt: skip

MESSAGES = [
    Case("killed", SUPERVISOR.format("main"), "the process that supervised this job (pid 7) was killed by signal 9; its"
         " replicas were ended"),
    Case("killed", SUPERVISOR.format("listeners"), "the process that guards this job was killed"),
    Case("killed", "src/torchx/schedulers/local_scheduler/_client.py", "the processes that supervised this job were killed;"
         " what could be found of its replicas was ended"),
    Case("node-lost", "src/torchx/schedulers/local_scheduler/_client.py", "the machine was restarted while this job ran"),
    Case("launch-failed", SUPERVISOR.format("plan"), "a restart failed: replica reboot/0 could not be started: No such file or directory: `x`"),
    Case("disk-full", SUPERVISOR.format("logs"), "the logs cannot be written: No space left on device"),
    Case("unknown", INVENTED, "something else about the machine reboot that was restarted"),
]  # fmt: skip
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


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: str(case.native)[:30])
def test_what_the_supervisor_says(case: Case) -> None:
    def of_message(message: str) -> AppSnapshot:
        return of_journal(["start", 1, 0, 0, 0, 7, 7], ["state", 3, "FAILED", message])

    check(case, of_message, RULES)


def test_a_pause_before_a_retry() -> None:
    restart = ["restart", 3, "REPLICA", 0, 0, 1, 2000]
    events = [["start", 1, 0, 0, 0, 7, 7], ["exit", 2, 0, 0, 0, 3, 0], restart]
    check(Case("retrying", REAL, events), lambda found: of_journal(*found), RULES)
