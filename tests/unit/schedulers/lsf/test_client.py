"""The scheduler on programs that stand in for LSF's, which fail, forget and take their time."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from torchx.errors import InvalidInput, JobStartError
from torchx.runner import Runner
from torchx.schedulers.lsf_scheduler import create_scheduler
from torchx.specs import AppDef, AppState, Resource, RetryPolicy, Role, is_terminal

FOREVER = "echo started; exec sleep 3600"


@pytest.fixture
def scheduler(lsf_programs):
    return create_scheduler("test")


@pytest.fixture
def started(scheduler):
    """Submits apps, and ends them after the test."""
    ids = []

    def start(script, name="w", replicas=1, **cfg):
        role = Role(name, "", entrypoint="sh", args=["-c", script], num_replicas=replicas)
        ids.append(scheduler.submit(AppDef("app", [role]), cfg))
        return ids[-1]

    yield start
    for app_id in ids:
        scheduler.cancel(app_id)
        if scheduler.exists(app_id):
            ended(scheduler, app_id)


def until(condition, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def ended(scheduler, app_id):
    until(lambda: is_terminal(scheduler.describe(app_id).state))
    return scheduler.describe(app_id)


def calls(programs, name):
    return [call for call in programs.calls() if call.split()[0] == name]


# -- few questions ------------------------------------------------------------------------------


def test_many_apps_that_are_watched_cost_one_question_in_two_seconds(
    scheduler, lsf_programs, started, tmp_path
):
    (tmp_path / "lsf" / "hold").touch()
    app_ids = [started(FOREVER) for _ in range(30)]
    runner = Runner("test", {"lsf": lambda session_name, **_: scheduler})
    before = len(calls(lsf_programs, "bjobs"))
    began = time.monotonic()
    watchers = [
        threading.Thread(target=runner.wait, args=[f"lsf://test/{app_id}", 1], daemon=True)
        for app_id in app_ids
    ]
    for watcher in watchers:
        watcher.start()
    until(lambda: len(calls(lsf_programs, "bjobs")) - before >= 3)
    asked = len(calls(lsf_programs, "bjobs")) - before
    took_s = time.monotonic() - began  # measured last: there may be more calls at any moment
    assert asked <= took_s / 2 + 1
    subprocess.run(["bkill", "-J", "app-*", "0"], check=True, capture_output=True)
    for watcher in watchers:
        watcher.join(60)
        assert not watcher.is_alive()


def test_an_app_that_has_noted_its_end_is_not_asked_for(scheduler, lsf_programs, started):
    app_id = started("true")
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED
    before = len(lsf_programs.calls())
    assert scheduler.describe(app_id).state is AppState.SUCCEEDED
    assert [*scheduler.log_iter(app_id, "w")] == []
    assert len(lsf_programs.calls()) == before


def test_following_output_asks_nothing(scheduler, lsf_programs, started):
    app_id = started("for i in 1 2 3 4; do echo $$i; sleep 0.5; done")
    until(lambda: scheduler.describe(app_id).state is not AppState.PENDING)
    before = len(lsf_programs.calls())
    lines = [*scheduler.log_iter(app_id, "w", should_tail=True)]
    assert lines == ["1\n", "2\n", "3\n", "4\n"]
    assert len(lsf_programs.calls()) == before


# -- versions, outages, lost answers ------------------------------------------------------------


def test_9_1_is_asked_in_the_way_that_it_knows(scheduler, lsf_programs, started, monkeypatch):
    monkeypatch.setenv("FAKE_LSF_VERSION", "9.1")
    app_id = started(FOREVER)
    until(lambda: scheduler.describe(app_id).state is AppState.RUNNING)
    forms = [("-json" in call, "pend_reason" in call) for call in calls(lsf_programs, "bjobs")]
    assert forms[:3] == [(True, True), (False, True), (False, False)]
    assert set(forms[3:]) <= {(False, False)}
    assert [row.app_id for row in scheduler.list()] == [app_id]


def test_a_daemon_that_is_away_for_a_moment_is_waited_for(scheduler, started, tmp_path):
    app_id = started("echo hi")
    down = tmp_path / "lsf" / "down"
    down.touch()
    threading.Timer(1.0, down.unlink).start()
    assert scheduler.describe(app_id) is not None


def test_slow_answers_are_answers(scheduler, started, monkeypatch):
    monkeypatch.setenv("FAKE_LSF_SLOW_S", "1")
    app_id = started("true")
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED


def test_a_job_whose_answer_was_lost_is_not_submitted_again(
    scheduler, lsf_programs, started, tmp_path
):
    (tmp_path / "lsf" / "lose-answers").touch()
    app_id = started("true")
    assert len(calls(lsf_programs, "bsub")) == 1
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED


def test_what_bjobs_has_forgotten_is_told_by_the_notes(scheduler, lsf_programs, started, tmp_path):
    app_id = started("exit 3")
    ended(scheduler, app_id)
    (tmp_path / "lsf" / "forget").touch()
    found = create_scheduler("other").describe(app_id)
    assert found.state is AppState.FAILED
    assert "exited with code 3" in found.msg


def test_what_bjobs_has_forgotten_is_told_by_bhist_where_nothing_was_noted(
    scheduler, lsf_programs, started, tmp_path, monkeypatch
):
    app_id = started("exit 3")
    ended(scheduler, app_id)
    until(lambda: '"EXIT"' in next((tmp_path / "lsf").glob("*.state")).read_text())
    (tmp_path / "lsf" / "forget").touch()
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "another"))
    monkeypatch.setenv("LSF_ENVDIR", str(tmp_path / "another"))
    found = create_scheduler("other").describe(app_id)
    assert found.state is AppState.FAILED
    assert len(calls(lsf_programs, "bhist")) == 1


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        ({"queue": "no_such"}, "no_such: No such queue"),
        ({"bsub_args": "-frobnicate"}, "Illegal option"),
    ],
)
def test_what_lsf_refuses_is_told_in_its_words(scheduler, started, tmp_path, cfg, words):
    with pytest.raises(JobStartError, match=words):
        started("true", **cfg)
    assert [*(tmp_path / "lsf").glob("*.state")] == []


def test_the_limit_of_arrays_is_told_with_what_helps(scheduler, started, monkeypatch):
    monkeypatch.setenv("FAKE_LSF_ARRAY", "2")
    with pytest.raises(JobStartError, match=r"array index too large.*`gang`"):
        started("true", replicas=3)


def test_a_folder_that_cannot_be_written_is_refused(scheduler, started, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"jobdir.*share"):
        started("true", jobdir=str(tmp_path / "file"))
    assert [*(tmp_path / "lsf").glob("*.state")] == []


def test_a_job_that_waits_says_why(scheduler, started, tmp_path):
    (tmp_path / "lsf" / "hold").touch()
    app_id = started("true")
    until(lambda: "Not enough job slots" in scheduler.describe(app_id).msg)


def test_a_job_that_waits_for_another_says_so(scheduler, started):
    first = started(FOREVER)
    second = started("true", dependency=f'done("{first}.0.w")')
    until(lambda: "dependency condition" in scheduler.describe(second).msg)
    scheduler.cancel(first)


def test_the_run_time_limit_is_named(scheduler, started, monkeypatch):
    monkeypatch.setenv("FAKE_LSF_MINUTE_S", "0.5")
    app_id = started(FOREVER, walltime="1")
    found = ended(scheduler, app_id)
    assert found.state is AppState.FAILED
    assert "run time limit reached" in found.msg


def test_a_replica_that_bkill_ended_outside_is_cancelled(scheduler, lsf_programs, started):
    app_id = started(FOREVER)
    until(lambda: scheduler.describe(app_id).state is AppState.RUNNING)
    subprocess.run(["bkill", "-J", f"{app_id}.*", "0"], check=True, capture_output=True)
    assert ended(scheduler, app_id).state is AppState.CANCELLED


def test_where_bkill_is_missing_on_the_host_the_watcher_ends_the_others(
    scheduler, lsf_programs, tmp_path
):
    role = Role("w", "", entrypoint="sh", num_replicas=2)
    role.args = ["-c", "[ ${replica_id} = 0 ] && exec sleep 3600; exit 3"]
    runner = Runner("test", {"lsf": lambda session_name, **_: scheduler})
    with lsf_programs.refusing("bkill"):
        app_id = scheduler.submit(AppDef("app", [role]), {})
        folder = scheduler.describe(app_id).metadata["folder"]
        until((Path(folder) / "notes" / "unended").exists)
    status = runner.wait(f"lsf://test/{app_id}", wait_interval=0.2)
    assert status.state is AppState.FAILED
    assert "w/1 exited with code 3" in status.msg


def test_bkill_is_believed_where_other_replicas_are_over_by_then(scheduler, tmp_path):
    over = f"{tmp_path}/jobs/${{app_id}}/notes/exit-0-0-0-0"
    scripts = {"a": "true", "b": f"until [ -e {over} ]; do sleep 0.1; done; exit 3"}
    roles = [Role(n, "", entrypoint="sh", args=["-c", script]) for n, script in scripts.items()]
    app_id = scheduler.submit(AppDef("app", roles), {"jobdir": str(tmp_path / "jobs")})
    assert ended(scheduler, app_id).state is AppState.FAILED
    notes = tmp_path / "jobs" / app_id / "notes"
    until((notes / "ending").exists)  # a replica notes its own end before it ends the others
    assert not (notes / "unended").exists()


def test_where_lsf_killed_a_replica_the_watcher_ends_the_others(scheduler, monkeypatch):
    monkeypatch.setenv("FAKE_LSF_MINUTE_S", "0.5")
    roles = [Role(n, "", entrypoint="sh", args=["-c", FOREVER]) for n in "ab"]
    roles[1].args = ["-c", "trap : USR2 INT TERM; while :; do sleep 0.2; done"]
    runner = Runner("test", {"lsf": lambda session_name, **_: scheduler})
    app_id = scheduler.submit(AppDef("app", roles), {"walltime": "1"})
    status = runner.wait(f"lsf://test/{app_id}", wait_interval=0.2)
    assert status.state is AppState.FAILED
    assert "a/0 killed by SIGUSR2 (run time limit reached)" in status.msg


def test_gang_takes_the_whole_app_or_nothing(scheduler, lsf_programs):
    roles = [
        Role("a", "", entrypoint="true", num_replicas=2, resource=Resource(2, 0, 1)),
        Role("b", "", entrypoint="false", resource=Resource(1, 0, 1), max_retries=1),
    ]
    for role in roles:
        role.retry_policy = RetryPolicy.APPLICATION
    app_id = scheduler.submit(AppDef("app", roles), {"gang": True})
    found = ended(scheduler, app_id)
    assert found.state is AppState.FAILED
    (call,) = calls(lsf_programs, "bsub")
    assert " -n 6 " in call
    assert "span[block=2]" in call
