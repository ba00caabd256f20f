"""The snapshot of an app, from what LSF tells and what the app noted."""

import pytest

from torchx.schedulers._core.snapshot import to_response
from torchx.schedulers.lsf_scheduler._job import AppRecord, Notes, RoleNote
from torchx.schedulers.lsf_scheduler._states import AppView, LsfSnapshot, Row, snapshot
from torchx.specs import AppState

RECORD = AppRecord("train", (RoleNote("worker", "worker", 2, max_retries=1),))


def row(k: int, stat: str, **more: object) -> Row:
    return Row("train-x.0.worker", "7", k + 1, stat, **more)  # type: ignore[arg-type]  # the test's


def seen(*rows: Row, record: AppRecord | None = RECORD, **notes: object) -> LsfSnapshot:
    view = AppView("train-x", rows, record, Notes(**notes), "/jobs/train-x")  # type: ignore[arg-type]  # the test's
    return snapshot(view)


def states(app: LsfSnapshot) -> list[AppState]:
    return [replica.state for replica in app.replicas]


def test_why_it_waits_is_told_in_lsfs_words():
    app = seen(row(0, "PEND", pend_reason="Not enough GPUs;"), row(1, "PEND"))
    assert app.state is AppState.PENDING
    assert "Not enough GPUs;" in to_response(app).msg


@pytest.mark.parametrize(
    ("stat", "words"), [("PSUSP", "held"), ("USUSP", "by a user"), ("SSUSP", "suspended by LSF")]
)
def test_suspended_jobs_wait_and_it_is_said(stat, words):
    app = seen(row(0, stat), row(1, stat))
    assert app.state is AppState.PENDING
    assert words in to_response(app).msg


def test_what_a_replica_noted_is_newer_than_the_answer_of_lsf():
    app = seen(row(0, "PEND"), row(1, "RUN"), attempts={(0, 0): 0, (0, 1): 0}, codes={(0, 1): 0})
    assert states(app) == [AppState.RUNNING, AppState.SUCCEEDED]


def test_a_failure_with_attempts_left_waits():
    app = seen(row(0, "PEND"), row(1, "RUN"), attempts={(0, 0): 0}, codes={(0, 0): 3})
    assert states(app) == [AppState.PENDING, AppState.RUNNING]
    words = "replica worker/0 exited with code 3, it starts again (restart 1 of 1)"
    assert words in to_response(app).msg


def test_a_failure_without_attempts_left_is_one():
    app = seen(row(0, "RUN"), row(1, "RUN"), attempts={(0, 0): 1}, codes={(0, 0): 3})
    assert states(app) == [AppState.FAILED, AppState.RUNNING]
    assert app.state is AppState.RUNNING
    assert app.restarts == 1


@pytest.mark.parametrize(
    ("reason", "state", "words"),
    [
        ("TERM_OWNER: job killed by owner", AppState.CANCELLED, ""),
        ("TERM_FORCE_OWNER: job killed", AppState.CANCELLED, ""),
        ("TERM_RUNLIMIT: x", AppState.FAILED, "killed by SIGTERM (run time limit reached)"),
        ("TERM_MEMLIMIT: x", AppState.FAILED, "killed by SIGTERM (memory limit reached)"),
        ("TERM_PREEMPT: x", AppState.FAILED, "killed by SIGTERM (preempted by another job)"),
        ("TERM_ADMIN: x", AppState.FAILED, "killed by SIGTERM (ended by an administrator)"),
        ("TERM_NEWLY_INVENTED: x", AppState.FAILED, "killed by SIGTERM (TERM_NEWLY_INVENTED: x)"),
        ("", AppState.FAILED, "killed by SIGTERM"),
    ],
)
def test_why_it_was_killed(reason, state, words):
    killed = {"attempts": {(0, 0): 0}, "codes": {(0, 0): 143}, "killed": frozenset([(0, 0)])}
    app = seen(row(0, "EXIT", exit_code=143, exit_reason=reason), row(1, "DONE"), **killed)
    assert states(app) == [state, AppState.SUCCEEDED]
    if words:
        assert app.replicas[0].ending == words


def test_why_it_was_killed_is_told_when_lsf_knows():
    killed = {"attempts": {(0, 0): 0}, "codes": {(0, 0): 143}, "killed": frozenset([(0, 0)])}
    assert states(seen(row(0, "RUN"), row(1, "DONE"), **killed))[0] is AppState.RUNNING


def test_what_is_ended_with_the_app_is_cancelled():
    ended = {
        "attempts": {(0, 0): 1, (0, 1): 0},
        "codes": {(0, 0): 3, (0, 1): 143},
        "killed": frozenset([(0, 1)]),
    }
    app = seen(row(0, "RUN"), row(1, "RUN"), ending=True, **ended)
    assert states(app) == [AppState.FAILED, AppState.CANCELLED]
    assert app.state is AppState.FAILED


def test_a_limit_is_the_cause_although_the_others_were_ended_for_it():
    limit = "TERM_RUNLIMIT: job killed after reaching LSF run time limit"
    ended = row(0, "EXIT", exit_code=140, exit_reason=limit)
    noted = {"attempts": {(0, 0): 0}, "codes": {(0, 0): 140}, "killed": frozenset([(0, 0)])}
    for notes in (noted, {}):  # where it could note its end, and where not
        app = seen(ended, row(1, "EXIT", exit_reason="TERM_OWNER: x"), ending=True, **notes)
        assert states(app) == [AppState.FAILED, AppState.CANCELLED]
        assert app.state is AppState.FAILED


def test_what_failed_and_ended_itself_with_the_others_failed():
    reason = "TERM_OWNER: job killed by owner"
    app = seen(
        row(0, "EXIT", exit_code=143, exit_reason=reason),
        row(1, "EXIT", exit_reason=reason),
        attempts={(0, 0): 1},
        codes={(0, 0): 3},
        ending=True,
    )
    assert states(app) == [AppState.FAILED, AppState.CANCELLED]
    assert app.replicas[0].exit_code == 3


def test_a_cancelled_app_is_cancelled_whatever_the_codes():
    codes = {"attempts": {(0, 0): 1, (0, 1): 1}, "codes": {(0, 0): 5, (0, 1): 0}}
    app = seen(row(0, "EXIT", exit_code=5), row(1, "DONE"), cancelled=True, **codes)
    assert app.state is AppState.CANCELLED


def test_a_job_that_never_noted_its_start_names_the_folder():
    app = seen(row(0, "EXIT", exit_code=127), row(1, "EXIT", exit_code=127))
    assert app.state is AppState.FAILED
    assert "/jobs/train-x" in to_response(app).msg


def test_without_the_folder_the_jobs_tell_the_roles():
    rows = [row(0, "RUN"), row(1, "RUN"), Row("train-x.1.reader", "8", 1, "PEND")]
    app = seen(*rows, record=None)
    assert [(role.name, role.num_replicas) for role in app.roles] == [("worker", 2), ("reader", 1)]
    assert app.name == "train"


def test_replicas_of_which_nothing_is_known_are_unknown():
    assert states(seen(row(0, "RUN"))) == [AppState.RUNNING, AppState.UNKNOWN]


def test_min_replicas_allows_some_to_fail():
    record = AppRecord("train", (RoleNote("worker", "worker", 2, min_replicas=1),))
    codes = {"attempts": {(0, 0): 0, (0, 1): 0}, "codes": {(0, 0): 3, (0, 1): 0}}
    app = seen(row(0, "EXIT"), row(1, "DONE"), record=record, **codes)
    assert app.state is AppState.SUCCEEDED


def test_all_replicas_of_a_gang_share_its_job():
    record = AppRecord("train", (RoleNote("worker", "worker", 2),), gang=True)
    app = seen(Row("train-x.gang", "7", 0, "RUN", host="node1"), record=record)
    assert states(app) == [AppState.RUNNING, AppState.RUNNING]
