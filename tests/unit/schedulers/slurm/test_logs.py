"""Logs of slurm, read from files that a test writes as a job would."""

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from torchx.errors import LogsNotFound, UnsupportedRequest
from torchx.schedulers.api import Stream
from torchx.schedulers.slurm_scheduler import create_scheduler
from torchx.specs import AppDef, AppState, Role

from . import samples


class Job:
    """A job of role ``w`` with two replicas, as far as its files go."""

    def __init__(self, fake_slurm, app_id: str = "9") -> None:
        fake_slurm.answer("sbatch", f"{app_id}\n")
        self.fake_slurm = fake_slurm
        self.state("RUNNING")
        self.scheduler = create_scheduler("t")
        app = AppDef("train", [Role("w", "", entrypoint="true", num_replicas=2)])
        self.app_id = self.scheduler.submit(app, {})
        token = fake_slurm.calls("sbatch")[-1][-1].split(":")[1]
        self.notes = Path(f".torchx-slurm-{os.getuid()}") / f"{app_id}-{token}"

    def state(self, native: str) -> None:
        job = samples.job_24_11(9, "w-0", native)
        self.fake_slurm.answer("squeue", samples.squeue(job))

    def note(self, name: str, text: str = "") -> None:
        self.notes.mkdir(parents=True, exist_ok=True)
        (self.notes / name).write_text(text)

    def write(self, text: str, k: int = 0, again: str = "", suffix: str = "out") -> None:
        with open(f"slurm-{self.app_id}-w-{k}{again}.{suffix}", "a") as f:
            f.write(text)

    def lines(self, **more: object) -> list[str]:
        return [*self.scheduler.log_iter(self.app_id, "w", **more)]

    def follow(self, do: Callable[[], None], **more: object) -> list[str]:
        """The lines of a follower while something happens in the meantime."""
        doing = threading.Thread(target=do)
        lines = self.scheduler.log_iter(self.app_id, "w", should_tail=True, **more)
        doing.start()
        try:
            return [*lines]
        finally:
            doing.join()


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def job(fake_slurm) -> Job:
    return Job(fake_slurm)


def test_what_is_there_is_given_in_the_order_of_attempts(job):
    assert job.lines() == []
    job.write("0 out\n")
    job.write("0 err\n", suffix="err")
    job.write("1 out\n0 half", again=".r1")
    job.write("2 out\n", again=".r2")
    assert job.lines() == ["0 out\n", "0 err\n", "1 out\n", "0 half", "2 out\n"]
    assert job.lines(streams=Stream.STDERR) == ["0 err\n"]
    assert job.lines(regex="^[12] out$") == ["1 out\n", "2 out\n"]


def test_following_ends_with_the_note_of_the_end_and_asks_slurm_nothing(job):
    def do() -> None:
        for i in range(3):
            job.write(f"{i}\n")
            time.sleep(0.2)
        job.write("last")
        job.note("exit-0-0-0-0")
        job.note("end-0-0")

    assert job.follow(do) == ["0\n", "1\n", "2\n", "last"]
    assert job.fake_slurm.calls("squeue") == []


def test_following_goes_on_in_the_next_attempt(job):
    def do() -> None:
        job.write("first\n")
        job.note("hosts-0-0", "n1\n")
        job.note("requeue-0")
        time.sleep(0.5)
        job.note("hosts-1-0", "n1\n")
        job.write("second\n", again=".r1")
        time.sleep(0.2)
        job.note("end-1-0")

    assert job.follow(do) == ["first\n", "second\n"]


def test_a_note_that_comes_at_once_after_another_is_seen(job):
    def do() -> None:
        time.sleep(0.3)
        job.note("hosts-0-0", "n1\n")
        for k in range(200):
            job.note(f"exit-0-0-{k}-0")
        job.note("end-0-0")

    assert job.follow(do) == []


def test_a_job_that_was_told_to_end_is_followed_to_its_last_words(job):
    def do() -> None:
        job.write("working\n")
        job.note("killed-0")
        job.state("CANCELLED")
        asked = len(job.fake_slurm.calls("squeue"))
        until(lambda: len(job.fake_slurm.calls("squeue")) > asked)
        time.sleep(0.5)  # long enough for a follower that goes by the state alone to end
        job.write("saved\n")
        job.note("over-0")

    assert job.follow(do) == ["working\n", "saved\n"]


def test_a_job_that_left_no_note_ends_by_what_slurm_says(job):
    def do() -> None:
        job.write("working\n")
        job.note("killed-0")
        time.sleep(0.5)
        job.state("FAILED")

    assert job.follow(do) == ["working\n"]


def test_lines_and_bytes_are_kept_as_they_are(job):
    with open("slurm-9-w-1.out", "wb") as f:
        f.write(b"a\rb\x0cc\n\n" + b"x" * 300_000 + b"\n\xff\n")
    assert job.lines(k=1) == ["a\rb\x0cc\n", "\n", "x" * 300_000 + "\n", "\ufffd\n"]


def test_following_keeps_no_file_open(job):
    """A thousand replicas may be followed where 1024 files may be open."""
    job.write("1\n2\n")
    job.write("3\n", suffix="err")
    before = len(os.listdir("/proc/self/fd"))
    following = job.scheduler.log_iter(job.app_id, "w", should_tail=True)
    assert [next(following) for _ in range(2)] == ["1\n", "2\n"]
    assert len(os.listdir("/proc/self/fd")) == before
    job.note("end-0-0")
    assert [*following] == ["3\n"]


def test_what_does_not_exist_is_said_so_at_the_call(job):
    with pytest.raises(RuntimeError, match="no role `x`, it has: w"):
        job.scheduler.log_iter(job.app_id, "x")
    with pytest.raises(RuntimeError, match="replicas 0 to 1, given: 2"):
        job.scheduler.log_iter(job.app_id, "w", 2)
    with pytest.raises(KeyError, match="`slurm` does not know app `nope`"):
        job.scheduler.log_iter("nope", "w")
    with pytest.raises(ValueError, match="regular expression"):
        job.scheduler.log_iter(job.app_id, "w", regex="[")
    with pytest.raises(ValueError, match="both"):
        job.scheduler.log_iter(job.app_id, "w", streams="both")


def test_a_time_range_is_refused(job):
    with pytest.raises(UnsupportedRequest, match="keeps no times"):
        job.scheduler.log_iter(job.app_id, "w", since=datetime(2030, 1, 1))


def test_logs_are_found_through_the_working_directory_that_slurm_tells(
    fake_slurm, tmp_path, monkeypatch
):
    there = tmp_path / "there"
    there.mkdir()
    (there / "slurm-77-w-0.out").write_text("found\n")
    record = samples.job_23_11(77, "w-0", "RUNNING", current_working_directory=str(there))
    fake_slurm.answer("squeue", samples.squeue(record))
    assert [*create_scheduler("t").log_iter("77", "w")] == ["found\n"]


def test_logs_are_found_through_the_file_of_job_dirs(fake_slurm, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (there / "slurm-77-w-0.out").write_text("found\n")
    Path(".torchxslurmjobdirs").write_text(f"77 = {there}\n")
    record = samples.job_23_11(77, "w-0", "RUNNING", current_working_directory="")
    fake_slurm.answer("squeue", samples.squeue(record))
    assert [*create_scheduler("t").log_iter("77", "w")] == ["found\n"]


def test_a_failure_has_its_error_file_and_last_words(job):
    job.note("hosts-1-0", "n1\nn2\n")
    job.note("exit-0-0-0-9")
    job.note("exit-1-0-1-3")
    time.sleep(0.02)
    job.note("exit-1-0-0-143")
    job.note("error-1-0-1.json", '{"message":\n {"message": "boom"}}')
    job.note("end-1-3")
    job.write("noise\n\nlast\n", k=1, again=".r1", suffix="err")
    job.state("FAILED")
    found = job.scheduler.describe(job.app_id)
    assert found.state is AppState.FAILED
    assert found.num_restarts == 1
    assert found.structured_error_msg == '{"message": {"message": "boom"}}'
    assert found.msg.startswith("replica w/1 exited with code 3")
    states = [r.state for r in found.roles_statuses[0].replicas]
    assert states == [AppState.CANCELLED, AppState.FAILED]
    (failed,) = job.scheduler.failed_replicas(job.app_id)
    assert (failed.replica, failed.attempt, failed.exit_code) == (1, 1, 3)
    assert failed.last_lines == ["noise", "last"]
    assert failed.log_path.endswith("slurm-9-w-1.r1.err")


def test_a_requeued_job_is_pending_and_its_new_attempt_has_no_failure_yet(job):
    job.note("exit-0-0-1-3")
    job.note("requeue-0")
    job.state("PENDING")
    found = job.scheduler.describe(job.app_id)
    assert (found.state, found.num_restarts) == (AppState.PENDING, 0)
    job.note("hosts-1-0", "n1\nn2\n")
    job.state("RUNNING")
    # squeue is not asked again at once
    until(lambda: job.scheduler.describe(job.app_id).state is not AppState.PENDING)
    found = job.scheduler.describe(job.app_id)
    assert (found.state, found.num_restarts) == (AppState.RUNNING, 1)
    assert {r.state for r in found.roles_statuses[0].replicas} == {AppState.RUNNING}
    assert job.scheduler.failed_replicas(job.app_id) == []


def test_an_elastic_role_has_as_many_replicas_as_hosts(fake_slurm):
    fake_slurm.answer("sbatch", "9\n")
    fake_slurm.answer("squeue", samples.squeue(samples.job_24_11(9, "w-0", "RUNNING")))
    scheduler = create_scheduler("t")
    role = Role("w", "", entrypoint="true", num_replicas=4, min_replicas=1)
    app_id = scheduler.submit(AppDef("a", [role]), {})
    token = fake_slurm.calls("sbatch")[-1][-1].split(":")[1]
    notes = Path(f".torchx-slurm-{os.getuid()}") / f"9-{token}"
    notes.mkdir(parents=True)
    (notes / "hosts-0-0").write_text("n1\nn2\n")
    found = scheduler.describe(app_id)
    assert [r.hostname for r in found.roles_statuses[0].replicas] == ["n1", "n2"]
    assert found.roles[0].num_replicas == 2


# -- several replicas ---------------------------------------------------------------------------


def blocks(job: Job, *args: object, **more: object) -> list[tuple[int, int, str]]:
    found = job.scheduler.log_blocks(job.app_id, *args, **more)
    return [(block.replica, block.attempt, block.text) for block in found]


def test_lines_of_several_replicas_come_by_replica(job):
    for k in range(2):
        job.write(f"out {k}\n", k=k)
        job.write(f"err {k}\n", k=k, suffix="err")
        job.write(f"again {k}\n", k=k, again=".r1")
    job.note("hosts-1-0", "n1\nn2\n")
    assert blocks(job) == [
        (k, attempt, text)
        for k in range(2)
        for attempt, text in ((0, f"out {k}\n"), (0, f"err {k}\n"), (1, f"again {k}\n"))
    ]
    assert blocks(job, [("w", 1)], streams=Stream.STDERR) == [(1, 0, "err 1\n")]
    assert blocks(job, attempt=1) == [(0, 1, "again 0\n"), (1, 1, "again 1\n")]
    assert blocks(job, tail_lines=1, attempt=0) == [(0, 0, "err 0\n"), (1, 0, "err 1\n")]
    with pytest.raises(LogsNotFound, match="no attempt 2"):
        job.scheduler.log_blocks(job.app_id, attempt=2)
    assert job.fake_slurm.calls("squeue") == []


def test_lines_of_several_replicas_are_followed_as_they_come(job):
    found = job.scheduler.log_blocks(job.app_id, should_tail=True)
    job.write("a\n")
    assert next(found).text == "a\n"
    job.write("b\n", k=1)
    assert next(found).text == "b\n"
    job.write("c\n")
    job.note("end-0-0")
    assert [(block.replica, block.text) for block in found] == [(0, "c\n")]
    assert job.fake_slurm.calls("squeue") == []


def test_log_files_that_are_gone_are_told(job, caplog):
    job.note("hosts-0-0", "n1\n")
    assert blocks(job) == []  # nothing was written yet
    for k in range(2):
        job.note(f"exit-0-0-{k}-0")
    job.note("end-0-0")
    job.write("", k=1)
    with pytest.raises(LogsNotFound, match=r"no log file `.*/slurm-9-w-0\.out`"):
        job.lines()
    with pytest.raises(LogsNotFound):
        job.lines(should_tail=True)
    with caplog.at_level(logging.WARNING):
        assert blocks(job) == []
    assert "log files of 1 replicas are missing: `" in caplog.text


def test_a_job_that_failed_before_its_replicas_says_what_slurm_said(job):
    job.note("hosts-0-0", "n1\nn2\n")
    job.note("role-0-0-1")
    job.note("end-0-1")
    words = "srun: unrecognized option '--nosuch=1'"
    Path("slurm-9.out").write_text(f"{words}\nrole w failed with code 1\njob exited with code 1\n")
    job.state("FAILED")
    with pytest.raises(LogsNotFound, match=words):
        job.lines()
    found = job.scheduler.describe(job.app_id)
    assert found.state is AppState.FAILED
    assert found.msg == f"replica w/0 exited with code 1 ({words}); FAILED"
    assert words in found.structured_error_msg
