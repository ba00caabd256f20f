"""What the events of a journal mean, without a job."""

import json
from typing import Any

import pytest

from torchx.schedulers.api import AppSnapshot
from torchx.schedulers.local_scheduler._record import JobRecord
from torchx.schedulers.local_scheduler._states import parse_journal, snapshot
from torchx.specs.api import AppState

RECORD = {
    "name": "job",
    "session": "s",
    "host": "h",
    "log_dir": "/logs",
    "created_ns": 1,
    "grace_s": 10,
    "ends_on_failure": True,
    "roles": [
        {"name": name, "dirs": dirs, "env": {}, "args": ["x"], "vary": {}}
        for name, dirs in (("a", ["/logs/a/0", "/logs/a/1"]), ("b", ["/logs/b/0"]))
    ],
}
STARTED: list[list[Any]] = [
    ["supervised", 1, "h", "boot", 10, 100, 11, 101],
    ["start", 2, 0, 0, 0, 20, 200],
    ["start", 2, 0, 1, 0, 21, 201],
    ["start", 2, 1, 0, 0, 22, 202],
    ["state", 3, "RUNNING", ""],
]


def look(*events: list[Any], started: bool = True) -> AppSnapshot:
    """The snapshot after these events."""
    lines = [json.dumps(event) for event in [*(STARTED if started else []), *events]]
    view = parse_journal("".join(f"{line}\n" for line in lines).encode())
    return snapshot(JobRecord("job-1", "/jobs/job-1", RECORD), view, {})


def states(found: AppSnapshot) -> list[str]:
    return [replica.state.name for replica in found.replicas]


def test_a_job_that_was_not_started_yet_is_pending() -> None:
    found = look(started=False)
    assert found.state is AppState.PENDING
    assert states(found) == ["PENDING"] * 3


def test_a_job_that_runs() -> None:
    found = look(["exit", 4, 0, 0, 0, 0, 0])
    assert found.state is AppState.RUNNING
    assert states(found) == ["SUCCEEDED", "RUNNING", "RUNNING"]
    assert found.fatal is None
    first, second, _ = found.replicas
    assert (first.exit_code, first.started_ns, first.ended_ns) == (0, 2, 4)
    assert (second.log_path, second.native_id, second.host) == (
        "/logs/a/1/combined.log",
        "21",
        "h",
    )


def test_a_failure_for_good_is_fatal_while_the_others_are_ended() -> None:
    found = look(["exit", 4, 0, 1, 0, 3, 0], ["ending", 5, "FAILED", ""])
    assert found.state is AppState.RUNNING
    assert states(found) == ["RUNNING", "FAILED", "RUNNING"]
    assert found.fatal is not None
    assert (found.fatal.key, found.ends_on_failure, found.cancelled) == (("a", 1), True, False)


def test_those_that_were_told_to_end_are_cancelled_whatever_their_code() -> None:
    found = look(
        ["exit", 4, 0, 1, 0, 3, 0],
        ["ending", 5, "FAILED", ""],
        ["exit", 6, 0, 0, 0, -15, 1],
        ["exit", 6, 1, 0, 0, 0, 1],
        ["state", 7, "FAILED", ""],
    )
    assert found.state is AppState.FAILED
    assert states(found) == ["CANCELLED", "FAILED", "CANCELLED"]
    assert [replica.key for replica in found.failures] == [("a", 1)]


def test_a_replica_that_is_to_be_retried_waits() -> None:
    events = [["exit", 4, 0, 1, 0, 3, 0], ["restart", 4, "REPLICA", 0, 1, 2, 500]]
    found = look(*events)
    assert found.state is AppState.RUNNING
    assert states(found) == ["RUNNING", "PENDING", "RUNNING"]
    assert (found.fatal, found.restarts) == (None, 1)
    assert found.message == "retry 2 begins after 0.5 s"
    again = look(*events, ["start", 5, 0, 1, 1, 30, 300])
    assert states(again) == ["RUNNING"] * 3
    assert again.replicas[1].attempt == 1
    assert again.replicas[1].log_path == "/logs/a/1/attempt_1/combined.log"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("ROLE", ["PENDING", "PENDING", "SUCCEEDED"]),
        ("APPLICATION", ["PENDING", "PENDING", "PENDING"]),
    ],
)
def test_a_whole_scope_waits_for_its_restart(policy: str, expected: list[str]) -> None:
    found = look(
        ["exit", 4, 1, 0, 0, 0, 0],
        ["exit", 4, 0, 1, 0, 3, 0],
        ["restart", 4, policy, 0, 1, 1, 0],
        ["exit", 5, 0, 0, 0, -15, 1],
    )
    assert states(found) == expected
    assert found.state is AppState.RUNNING


def test_a_cancelled_job_is_cancelled_whatever_failed_before() -> None:
    found = look(
        ["exit", 4, 0, 1, 0, 3, 0],
        ["ending", 5, "CANCELLED", ""],
        ["exit", 6, 0, 0, 0, 5, 1],
        ["exit", 6, 1, 0, 0, -9, 1],
        ["state", 7, "CANCELLED", ""],
    )
    assert (found.state, found.cancelled) == (AppState.CANCELLED, True)


def test_replicas_of_a_job_that_lost_its_supervisor_were_ended() -> None:
    found = look(["exit", 4, 0, 0, 0, 0, 0], ["state", 7, "FAILED", "killed"])
    assert found.state is AppState.FAILED
    assert states(found) == ["SUCCEEDED", "CANCELLED", "CANCELLED"]
    assert found.message == "killed"


def test_what_is_newer_than_this_version_is_passed_over() -> None:
    found = look(["teleport", 4, {}], ["exit", 4], ["state", 5, "VANISHED", ""], [], [["exit"]])
    assert found.state is AppState.RUNNING


@pytest.mark.parametrize(
    "damaged", ["{}", "7", "null", '["exit", 4,', '["state", 4, "FAI', "\0", "1], [2", "\udc80"]
)
def test_a_damaged_line_is_passed_over_and_all_others_count(damaged: str) -> None:
    lines = [*map(json.dumps, STARTED), damaged, '["state", 9, "SUCCEEDED", "done"]']
    data = "\n".join([*lines, '["state", 10, "FAILED", "'])
    view = parse_journal(data.encode("utf-8", "surrogateescape"))
    assert (view.state, view.message, view.ended_ns) == (AppState.SUCCEEDED, "done", 9)
    assert len(view.replicas) == 3


@pytest.mark.parametrize(
    "data", [None, [], {}, {**RECORD, "roles": [{}]}, {**RECORD, "created_ns": "x"}]
)
def test_a_damaged_record_is_of_unknown_state(data: object) -> None:
    record = JobRecord("job-1", "/jobs/job-1", data)
    found = snapshot(record, parse_journal(b""), {})
    assert found.state is AppState.UNKNOWN
    assert "damaged" in found.message
