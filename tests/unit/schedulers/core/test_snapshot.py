"""What is derived from a snapshot: the state of an app, its message, first failure and answers."""

import json

import pytest

from torchx.errors import LogsNotFound
from torchx.schedulers._core.snapshot import (
    AppSnapshot,
    ReplicaSnapshot,
    aggregate,
    message,
    select_replicas,
    to_response,
    to_row,
)
from torchx.specs import NONE, AppState, Role

S, P, R = AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING
OK, BAD, GONE, HUH = AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED, AppState.UNKNOWN


def replicas(*states: AppState, role: str = "w") -> tuple[ReplicaSnapshot, ...]:
    return tuple(ReplicaSnapshot(role, k, state) for k, state in enumerate(states))


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([P, P], P),
        ([S, S], S),
        ([S, P], P),
        ([R, P], R),
        ([R, R], R),
        ([OK, P], R),
        ([OK, R], R),
        ([BAD, R], R),
        ([BAD, P], R),
        ([OK, OK], OK),
        ([OK, BAD], BAD),
        ([BAD, GONE], BAD),
        ([OK, GONE], GONE),
        ([HUH, P], HUH),
        ([HUH, R], R),
        ([], HUH),
    ],
)
def test_the_state_of_an_app_follows_from_its_replicas(
    states: list[AppState], expected: AppState
) -> None:
    assert aggregate(replicas(*states)) is expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [([OK, BAD], GONE), ([BAD, BAD], GONE), ([GONE, GONE], GONE), ([BAD, R], R)],
)
def test_a_cancelled_app_is_cancelled_whatever_its_exit_codes(
    states: list[AppState], expected: AppState
) -> None:
    assert aggregate(replicas(*states), cancelled=True) is expected


def test_min_replicas_allows_the_others_to_fail() -> None:
    role = Role("w", "", num_replicas=3, min_replicas=2)
    one = AppSnapshot("a", replicas(OK, BAD, OK), (role,))
    two = AppSnapshot("a", replicas(OK, BAD, BAD), (role,))
    assert (one.state, one.fatal) == (OK, None)
    assert len(one.failures) == 1  # reported all the same
    assert two.state is BAD
    assert two.fatal is two.failures[0]


def test_the_backends_own_word_for_the_app_wins() -> None:
    assert AppSnapshot("a", replicas(OK, OK), native_state=R).state is R


def failed(k: int, ended_ns: int | None, error: str | None = None) -> ReplicaSnapshot:
    return ReplicaSnapshot("w", k, BAD, exit_code=k, ended_ns=ended_ns, error=error)


def test_the_first_failure_is_by_time_and_causes_stand_before_consequences() -> None:
    lost = "DistNetworkError: Connection closed by peer"
    snapshot = AppSnapshot("a", (failed(0, 1, lost), failed(1, 3), failed(2, 2), failed(3, None)))
    assert [r.replica for r in snapshot.failures] == [2, 1, 3, 0]


def test_of_failures_at_one_time_the_one_with_an_error_stands_first() -> None:
    raised = "ValueError: loss is NaN"
    for ended_ns in (None, 7):
        apart = failed(3, 8 if ended_ns else None)
        snapshot = AppSnapshot("a", (failed(1, ended_ns), failed(2, ended_ns, raised), apart))
        assert [r.replica for r in snapshot.failures] == [2, 1, 3]


def test_an_app_that_is_ending_names_its_first_failure() -> None:
    states = (*replicas(R), failed(1, 5))
    ending = AppSnapshot("a", states, ends_on_failure=True)
    assert ending.state is R
    assert message(ending) == "replica w/1 exited with code 1, ending the other replicas"
    assert message(AppSnapshot("a", states)) == "replica w/1 exited with code 1"


def test_messages_hold_the_backends_words() -> None:
    assert message(AppSnapshot("a", replicas(P), message="Resources")) == "Resources"
    assert message(AppSnapshot("a", replicas(GONE), cancelled=True, message="x")) == "cancelled; x"
    assert message(AppSnapshot("a", replicas(R), cancelled=True)) == "being cancelled"
    assert to_response(AppSnapshot("a", replicas(R))).msg == NONE


def test_the_answer_has_statuses_in_the_order_of_roles_and_the_error_of_the_first_failure() -> None:
    killed = ReplicaSnapshot("a", 0, BAD, -9, "out of memory", "n1", ended_ns=7_000_000_000)
    roles = (Role("w", "", num_replicas=1), Role("a", "", num_replicas=1))
    snapshot = AppSnapshot("id", (killed, *replicas(OK)), roles, "name", restarts=2)
    found = to_response(snapshot)
    assert (found.app_id, found.state, found.num_restarts) == ("id", BAD, 2)
    assert [status.role for status in found.roles_statuses] == ["w", "a"]
    assert found.roles_statuses[0].replicas[0].structured_error_msg == NONE
    assert found.roles_statuses[1].replicas[0].hostname == "n1"
    assert json.loads(found.structured_error_msg) == {
        "message": "killed by SIGKILL (out of memory)",
        "errorCode": -9,
        "timestamp": 7,
    }
    row = to_row(snapshot)
    assert (row.app_id, row.state, row.name) == ("id", BAD, "name")


def test_replicas_are_chosen_or_it_says_which_there_are() -> None:
    snapshot = AppSnapshot("a", replicas(R, R))
    assert select_replicas(snapshot, None) == [("w", 0), ("w", 1)]
    assert select_replicas(snapshot, [("w", 1), ("w", 1)]) == [("w", 1)]
    with pytest.raises(LogsNotFound, match="replicas 0 to 1, given: 2"):
        select_replicas(snapshot, [("w", 2)])
    with pytest.raises(LogsNotFound, match="no role `x`, it has: w"):
        select_replicas(snapshot, [("x", 0)])


def test_min_replicas_allow_nothing_where_the_backend_leaves_them_out() -> None:
    role = Role("w", "", num_replicas=3, min_replicas=2)
    app = AppSnapshot("a", replicas(OK, BAD, OK), (role,), min_replicas_count=False)
    assert app.state is BAD
    assert app.fatal is not None
