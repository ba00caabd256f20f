"""Docker's records as states and messages."""

import json

import pytest

from tests.unit.schedulers.docker.fake_daemon import row
from torchx.schedulers.docker_scheduler import CONTAINER_STATE
from torchx.schedulers.docker_scheduler._states import (
    Details,
    app_state,
    build_response,
    by_role,
    container_state,
    describe_exit,
    failure_json,
    parse_container,
    parse_details,
    parse_exit_code,
)
from torchx.specs import AppState


@pytest.mark.parametrize(
    ("status", "text", "state"),
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
def test_states_of_containers(status, text, state):
    container = parse_container(row(status, text))
    assert container_state(container) is state
    if status not in ("exited", "dreaming"):
        assert CONTAINER_STATE[status] is state


@pytest.mark.parametrize(
    ("status", "text", "state"),
    [
        ("exited", "Exited (0) now", AppState.CANCELLED),
        ("exited", "Exited (143) now", AppState.CANCELLED),
        ("created", "Created", AppState.CANCELLED),
        ("running", "Up 1 second", AppState.RUNNING),
    ],
)
def test_a_marked_container_is_cancelled_once_it_has_ended(status, text, state):
    container = parse_container(row(status, text))
    assert container_state(container, {container.id[:12]}) is state


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ("SUCCEEDED SUCCEEDED", "SUCCEEDED"),
        ("SUCCEEDED FAILED", "FAILED"),
        ("FAILED RUNNING PENDING", "RUNNING"),
        ("SUCCEEDED PENDING RUNNING", "PENDING"),
        ("SUCCEEDED FAILED CANCELLED", "CANCELLED"),
        ("UNKNOWN", "UNKNOWN"),
    ],
)
def test_states_of_apps(states, state):
    assert app_state([AppState[name] for name in states.split()]) is AppState[state]


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
    assert parse_container(row("running", Names=names)).name == "own"


@pytest.mark.parametrize(
    ("details", "text"),
    [
        (Details(3), "exited with code 3"),
        (Details(137, oom_killed=True, memory_bytes=64 << 20), "limit of 64 MB"),
        (Details(137, oom_killed=True), "more memory than its limit (exit code 137)"),
        (Details(137), "signal 9 (SIGKILL, exit code 137)"),
        (Details(139), "signal 11 (SIGSEGV, exit code 139)"),
        (Details(255), "exited with code 255"),
        (Details(127), "a command was not found"),
        (Details(126), "could not be executed"),
        (Details(127, error="no such file"), "could not be started: no such file"),
    ],
)
def test_ends_in_words(details, text):
    assert text in describe_exit(details)


def test_details_of_a_record():
    record = {
        "State": {
            "ExitCode": 137,
            "OOMKilled": True,
            "FinishedAt": "2026-01-02T03:04:05.123456789Z",
            "Error": "",
        },
        "RestartCount": 2,
        "HostConfig": {"Memory": 1 << 20, "RestartPolicy": {"MaximumRetryCount": 3}},
    }
    details = parse_details(record)
    assert (details.exit_code, details.oom_killed, details.restarts) == (137, True, 2)
    assert (details.max_restarts, details.memory_bytes) == (3, 1 << 20)
    assert json.loads(failure_json(details))["timestamp"] == 1767323045
    assert parse_details({}) == Details()


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
    container = parse_container(row("running", "Up 1 second"))
    found = build_response("job-x1", {"worker": [container]}, {}, (), {})
    assert (found.state, found.roles[0].image) == (AppState.RUNNING, "<UNKNOWN>")
    assert found.roles_statuses[0].replicas[0].hostname == "job-x1-worker-0"
