"""Docker's records as states and messages."""

import json

import pytest

from tests.unit.schedulers.docker.fake_daemon import row
from torchx.schedulers._core.snapshot import to_response
from torchx.schedulers.docker_scheduler import CONTAINER_STATE
from torchx.schedulers.docker_scheduler._states import (
    Details,
    Ended,
    build_snapshot,
    by_role,
    container_state,
    needs_details,
    parse_container,
    parse_details,
    parse_exit_code,
)
from torchx.specs import AppState


def container(status, text="", k=0, **more):
    found = parse_container(row(status, text, k, **more))
    assert found is not None
    return found


def state(status, text, ended=(), abandoned=False):
    one = container(status, text)
    return container_state(one, one.exit_code, ended, abandoned)


def snapshot(*containers, details=None, ended=None, images=None, abandoned=False):
    found = details or {}
    ended = ended or Ended()
    return build_snapshot("job-x1", containers[::-1], found, images or {}, ended, abandoned)


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        ("created", "Created", AppState.SUBMITTED),
        ("restarting", "Restarting (1) 2 seconds ago", AppState.PENDING),
        ("running", "Up 3 seconds", AppState.RUNNING),
        ("paused", "Up 3 seconds (Paused)", AppState.PENDING),
        ("removing", "Removal In Progress", AppState.PENDING),
        ("dead", "Dead", AppState.FAILED),
        ("exited", "Exited (0) 2 hours ago", AppState.SUCCEEDED),
        ("exited", "Exited (137) 2 hours ago", AppState.FAILED),
        ("dreaming", "", AppState.UNKNOWN),
    ],
)
def test_states_of_containers(status, text, expected):
    assert state(status, text) is expected
    if status not in ("exited", "dreaming"):
        assert CONTAINER_STATE[status] is expected


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        ("exited", "Exited (0) now", AppState.CANCELLED),
        ("exited", "Exited (143) now", AppState.CANCELLED),
        ("created", "Created", AppState.CANCELLED),
        ("running", "Up 1 second", AppState.RUNNING),
    ],
)
def test_a_container_that_was_asked_to_end_is_cancelled_once_it_has(status, text, expected):
    assert state(status, text, {container(status).id[:12]}) is expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("0 0", AppState.SUCCEEDED),
        ("0 3", AppState.FAILED),
        ("3 running", AppState.RUNNING),
        ("0 restarting", AppState.RUNNING),
        ("restarting restarting", AppState.PENDING),
        ("created created", AppState.SUBMITTED),
        ("created running", AppState.RUNNING),
        ("dreaming", AppState.UNKNOWN),
    ],
)
def test_states_of_apps(rows, expected):
    containers = [
        container("exited", f"Exited ({text}) now", k) if text.isdigit() else container(text, k=k)
        for k, text in enumerate(rows.split())
    ]
    assert snapshot(*containers).state is expected


def test_what_a_cancel_ended_is_cancelled_whatever_its_exit_code():
    one, two = container("exited", "Exited (143) now"), container("exited", "Exited (0) now", 1)
    found = snapshot(one, two, ended=Ended(cancelled=True, ids=frozenset({one.id[:12]})))
    assert found.state is AppState.CANCELLED
    assert [r.state for r in found.replicas] == [AppState.CANCELLED, AppState.SUCCEEDED]


def test_what_was_ended_for_a_failure_leaves_the_app_failed():
    one, two = container("exited", "Exited (143) now"), container("exited", "Exited (3) now", 1)
    found = snapshot(one, two, ended=Ended(failed=True, ids=frozenset({one.id[:12]})))
    assert found.state is AppState.FAILED
    assert [r.state for r in found.replicas] == [AppState.CANCELLED, AppState.FAILED]
    assert to_response(found).msg == "replica worker/1 exited with code 3"


# -- half-started ---------------------------------------------------------------------------------


def test_an_app_that_is_being_started_says_how_far_it_is():
    found = snapshot(container("running"), container("created", k=1), container("created", k=2))
    assert found.state is AppState.RUNNING
    assert to_response(found).msg == "2 of 3 replicas are not started yet"


def test_a_half_started_app_says_what_to_do_and_ends():
    containers = [container("running"), container("created", k=1)]
    found = snapshot(*containers, abandoned=True)
    assert found.state is AppState.RUNNING
    assert [r.state for r in found.replicas] == [AppState.RUNNING, AppState.FAILED]
    msg = to_response(found).msg
    assert "replica worker/1 was never started" in msg
    assert "half-started: 1 of 2 replicas will never start, as their launcher has ended" in msg
    assert "`torchx delete local_docker:///job-x1`" in msg
    containers[0] = container("exited", "Exited (0) now")
    assert snapshot(*containers, abandoned=True).state is AppState.FAILED
    assert snapshot(container("created"), abandoned=True).state is AppState.FAILED


def test_a_half_started_app_that_was_cancelled_is_cancelled():
    containers = [container("exited", "Exited (143) now"), container("created", k=1)]
    ended = Ended(cancelled=True, ids=frozenset({containers[0].id[:12]}))
    found = snapshot(*containers, ended=ended, abandoned=True)
    assert (found.state, to_response(found).msg) == (AppState.CANCELLED, "cancelled")


# -- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [("Exited (3) 1 second ago", 3), ("Up 2 minutes (healthy)", None), ("", None),
     ("Restarting (1) 1 second ago", None), ("Exited", None)],
)  # fmt: skip
def test_exit_codes_in_lists(text, code):
    assert parse_exit_code(text) == code


def test_rows_that_are_not_ours_are_left_out():
    assert parse_container({"Id": "1", "Labels": None}) is None
    for labels in ({}, {"torchx.pytorch.org/replica-id": "x"}):
        assert parse_container({**row("running"), "Labels": labels}) is None


def test_the_name_is_not_that_of_a_link():
    names = ["/other/alias", "/own"]
    assert container("running", Names=names).name == "own"


def test_labels_say_what_else_is_to_be_known():
    labels = {
        **row("running")["Labels"],
        "torchx.pytorch.org/max-retries": "2",
        "torchx.pytorch.org/on-failure": "end",
        "torchx.pytorch.org/launcher": "me",
    }
    found = container("running", Labels=labels, Created=7)
    assert (found.retried, found.ends_on_failure, found.launcher) == (True, True, "me")
    assert found.created_s == 7
    assert snapshot(found).ends_on_failure
    labels["torchx.pytorch.org/on-failure"] = "wait"
    assert not snapshot(container("running", Labels=labels)).ends_on_failure
    assert not snapshot(container("running")).ends_on_failure  # made by the published package


def test_records_are_needed_of_failures_and_of_what_is_retried():
    assert not needs_details(container("running"))
    assert not needs_details(container("exited", "Exited (0) now"))
    assert needs_details(container("exited", "Exited (3) now"))
    assert needs_details(container("exited", "in another language"))
    assert needs_details(container("dead"))
    labels = {**row("running")["Labels"], "torchx.pytorch.org/max-retries": "2"}
    assert needs_details(container("running", Labels=labels))


OUT_OF_MEMORY = "out of memory: its limit is 64 MB, raise the role's memMB"


@pytest.mark.parametrize(
    ("details", "code", "text"),
    [
        (Details(3), 3, "exited with code 3"),
        (Details(137, True, memory_bytes=64 << 20), -9, f"killed by SIGKILL ({OUT_OF_MEMORY})"),
        (Details(137, True), -9, "killed by SIGKILL (out of memory)"),
        (Details(1, True), 1, "exited with code 1 (out of memory)"),
        (Details(137), -9, "killed by SIGKILL"),
        (Details(139), -11, "killed by SIGSEGV"),
        (Details(255), 255, "exited with code 255"),
        (Details(127), 127, "exited with code 127 (command not found)"),
        (Details(126), 126, "exited with code 126 (the command could not be executed)"),
        (Details(127, error="no such file"), None, "could not be started: no such file"),
    ],
)
def test_ends_in_words(details, code, text):
    one = container("exited", f"Exited ({details.exit_code}) now")
    (replica,) = snapshot(one, details={one.id: details}).replicas
    assert (replica.state, replica.exit_code, replica.ending) == (AppState.FAILED, code, text)


def test_details_of_a_record():
    record = {
        "State": {
            "ExitCode": 137,
            "OOMKilled": True,
            "StartedAt": "2026-01-02T03:04:04Z",
            "FinishedAt": "2026-01-02T03:04:05.123456789Z",
            "Error": "",
        },
        "RestartCount": 2,
        "HostConfig": {"Memory": 1 << 20, "RestartPolicy": {"MaximumRetryCount": 3}},
    }
    details = parse_details(record)
    assert (details.exit_code, details.oom_killed, details.restarts) == (137, True, 2)
    assert details.memory_bytes == 1 << 20
    one = container("exited", "Exited (137) now")
    found = snapshot(one, details={one.id: details})
    (replica,) = found.replicas
    assert (replica.attempt, found.restarts) == (2, 2)
    assert replica.started_ns == 1767323044_000000000
    assert replica.ended_ns == 1767323045_123456789
    assert json.loads(replica.error_json)["timestamp"] == 1767323045
    assert parse_details({}) == Details()


def test_a_container_that_runs_again_has_not_ended():
    details = Details(1, started_ns=2, ended_ns=1, restarts=1)
    one = container("running")
    (replica,) = snapshot(one, details={one.id: details}).replicas
    assert (replica.exit_code, replica.ended_ns, replica.attempt) == (None, None, 1)


def test_roles_come_in_the_order_of_their_first_replicas():
    def of(role, k):
        labels = {**row("running")["Labels"], "torchx.pytorch.org/role-name": role}
        labels["torchx.pytorch.org/replica-id"] = str(k)
        return parse_container({**row("running"), "Labels": labels, "Id": f"{role}{k}"})

    created = [of("z", 0), of("a", 0), of("a", 2), of("z", 1), of("a", 1)]
    found = by_role(created[::-1])
    assert {role: [c.replica for c in found[role]] for role in found} == {
        "z": [0, 1],
        "a": [0, 1, 2],
    }
    assert [*found] == ["z", "a"]
    # replica 0 may have been removed by hand
    assert [*by_role([of("b", 1)])] == ["b"]


def test_a_response_without_the_image():
    found = to_response(snapshot(container("running", "Up 1 second")))
    assert (found.state, found.roles[0].image) == (AppState.RUNNING, "<UNKNOWN>")
    assert found.roles_statuses[0].replicas[0].hostname == "job-x1-worker-0"
    found = to_response(snapshot(container("running"), images={"sha256:1": "i:3"}))
    assert found.roles[0].image == "i:3"
