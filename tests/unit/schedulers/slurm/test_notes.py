"""What the notes of a job tell of its replicas."""

import os
from pathlib import Path

import pytest

from torchx.schedulers._core.snapshot import AppSnapshot, message
from torchx.schedulers.slurm_scheduler._job import JobNotes, JobRecord, RoleNote
from torchx.schedulers.slurm_scheduler._notes import read_notes
from torchx.schedulers.slurm_scheduler._states import Component, JobView, NativeJob, snapshot
from torchx.specs import AppState


@pytest.fixture
def notes(tmp_path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def ended(notes: Path, *codes: int, same_time: bool = False) -> None:
    """Replicas of the first role that end one after the other, 0 first."""
    for k, code in enumerate(codes):
        path = notes / f"exit-0-0-{k}-{code}"
        path.touch()
        at_ns = 1_700_000_000_000_000_000 + (0 if same_time else k * 1_000_000)
        os.utime(path, ns=(at_ns, at_ns))


def shown(
    notes: JobNotes, replicas: int, *hosts: str, native: str = "FAILED", **more: object
) -> AppSnapshot:
    """The snapshot of a job of one role."""
    state = AppState.FAILED if native == "FAILED" else AppState.RUNNING
    job = NativeJob("9", (Component("w-0", state, native, hosts=hosts),))
    record = JobRecord("app", (RoleNote("w", replicas),), **more)
    return snapshot(JobView("9", job, notes, record=record))


@pytest.mark.parametrize(
    ("codes", "failed"),
    [
        ((137, 1), [0, 1]),  # killed for its memory; the other fails of the SIGTERM that follows
        ((1, 143), [0]),
        ((1, 137, 143), [0]),
        ((137, 143), [0]),
        ((143, 137, 1), [0, 2]),
        ((0, 143, 2), [1, 2]),
        ((0, 0), []),
    ],
)
def test_the_first_replica_that_ends_badly_is_the_one_that_failed(notes, codes, failed):
    ended(notes, *codes)
    found = shown(read_notes(str(notes)), len(codes))
    assert [r.replica for r in found.failures] == failed
    assert [r.replica for r in found.replicas if r.state is AppState.FAILED] == sorted(failed)
    if failed:
        assert found.fatal is found.replicas[failed[0]]


def test_of_one_instant_an_exit_is_the_cause_and_a_signal_is_not(notes):
    ended(notes, 143, 1, same_time=True)
    assert [r.key for r in shown(read_notes(str(notes)), 2).failures] == [("w", 1)]


def test_signals_of_a_job_that_is_ended_from_outside_are_no_failures(notes):
    ended(notes, 143, 137, 1)
    (notes / "killed-0").touch()
    assert [r.key for r in shown(read_notes(str(notes)), 3).failures] == [("w", 2)]


def test_a_replica_that_was_sent_a_signal_failed_only_if_it_was_the_first(notes):
    ended(notes, 3, 1, 1)
    for k in range(2):
        (notes / f"ended-0-0-{k}").touch()
    found = shown(read_notes(str(notes)), 3)
    assert [r.key for r in found.failures] == [("w", 0), ("w", 2)]
    assert found.replicas[1].state is AppState.CANCELLED


def hosts(notes: Path, replicas: int, *nodes: str) -> list[str]:
    found = shown(read_notes(str(notes)), replicas, *nodes, native="RUNNING")
    return [r.host for r in found.replicas]


def test_replicas_that_share_one_node_are_on_it(notes):
    assert hosts(notes, 3, "n1") == ["n1", "n1", "n1"]
    (notes / "hosts-0-0").write_text("n2\n")
    assert hosts(notes, 3) == ["n2", "n2", "n2"]


def test_replicas_that_share_several_nodes_are_where_they_said(notes):
    (notes / "hosts-0-0").write_text("rack-1\nrack-2\n")
    assert hosts(notes, 4) == ["", "", "", ""]
    for k in range(4):
        (notes / f"host-0-0-{k}-rack-{k // 2 + 1}").touch()
    assert hosts(notes, 4) == ["rack-1", "rack-1", "rack-2", "rack-2"]
    (notes / "hosts-1-0").write_text("n1\nn2\n")
    assert hosts(notes, 2) == ["n1", "n2"]


@pytest.mark.parametrize("name", ["host-0", "host-0-x-1-n", "host-0-0-1", "host-0-0-x-n"])
def test_names_that_are_no_notes_of_hosts_are_left_alone(notes, name):
    (notes / name).touch()
    assert read_notes(str(notes)).host_of == {}


# -- while a job runs ---------------------------------------------------------------------------


def test_a_failure_is_told_while_the_others_are_ended(notes):
    ended(notes, 0, 3)
    found = shown(read_notes(str(notes)), 3, native="RUNNING")
    assert (found.state, found.terminal) == (AppState.RUNNING, False)
    states = [r.state for r in found.replicas]
    assert states == [AppState.SUCCEEDED, AppState.FAILED, AppState.RUNNING]
    assert message(found) == "replica w/1 exited with code 3, ending the other replicas"
    found = shown(read_notes(str(notes)), 3, native="RUNNING", end_on_failure=False)
    assert message(found) == "replica w/1 exited with code 3"


def test_a_failure_that_is_retried_is_none_yet(notes):
    ended(notes, 3, 143)
    later = shown(read_notes(str(notes)), 2, native="RUNNING", max_retries=1)
    os.utime(notes / "exit-0-0-1-143", ns=(1, 1))
    earlier = shown(read_notes(str(notes)), 2, native="RUNNING", max_retries=1)
    os.utime(notes / "exit-0-0-1-143")
    assert "replica w/0 exited with code 3, the job starts again" in message(later)
    assert "replica w/1 killed by SIGTERM, the job starts again" in message(earlier)
    found = shown(read_notes(str(notes)), 2, native="RUNNING", max_retries=1)
    assert found.fatal is None
    assert {r.state for r in found.replicas} == {AppState.PENDING}
    assert "replica w/0 exited with code 3, the job starts again (restart 1 of 1)" in message(found)
    (notes / "end-0-3").touch()  # the requeue was refused
    found = shown(read_notes(str(notes)), 2, native="RUNNING", max_retries=1)
    assert [r.key for r in found.failures] == [("w", 0)]


def test_a_killed_replica_has_a_signal_and_the_reason_of_its_job(notes):
    ended(notes, 137)
    job = NativeJob("9", (Component("w-0", AppState.FAILED, "OUT_OF_MEMORY"),))
    record = JobRecord("app", (RoleNote("w", 1),))
    found = snapshot(JobView("9", job, read_notes(str(notes)), record=record))
    (replica,) = found.failures
    assert (replica.exit_code, replica.ending) == (-9, "killed by SIGKILL (out of memory)")


def test_a_step_that_failed_without_its_replicas_has_the_words_of_slurm(notes):
    (notes / "role-0-1-1").touch()
    record = JobRecord("app", (RoleNote("a", 1), RoleNote("b", 2)))
    job = NativeJob("9", (Component("a-0", AppState.FAILED, "FAILED"),))
    words = "srun: unrecognized option '--nosuch'"
    found = snapshot(JobView("9", job, read_notes(str(notes)), record=record, words=words))
    assert [r.key for r in found.failures] == [("b", 0), ("b", 1)]
    assert message(found) == f"replica b/0 exited with code 1 ({words}); FAILED"


def test_as_many_replicas_may_fail_as_there_are_more_than_needed(notes):
    (notes / "hosts-0-0").write_text("n1 n2 n3")
    ended(notes, 0, 3, 0)
    record = JobRecord("app", (RoleNote("w", 4, min_replicas=2),))
    job = NativeJob("9", (Component("w-0", AppState.SUCCEEDED, "COMPLETED"),))
    found = snapshot(JobView("9", job, read_notes(str(notes)), record=record))
    assert (found.state, found.fatal) == (AppState.SUCCEEDED, None)
    assert [r.key for r in found.failures] == [("w", 1)]


@pytest.mark.parametrize(
    "data", [None, [], {}, {"roles": 1}, {"roles": [{"name": "a"}]}, {"roles": [1]}]
)
def test_what_is_no_record_is_none(data):
    assert JobRecord.from_data(data) is None
