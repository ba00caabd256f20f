"""One verb, one question: how often the daemon is asked about apps of 3 and of 300 replicas."""

import re
from collections import Counter

import pytest

pytest.importorskip("docker", reason="needs the Python package docker")

from tests.unit.schedulers.docker.engine import Engine
from torchx.runner import Runner
from torchx.schedulers.api import Stream

HANDLE = "local_docker://test/job-x1"


def asked(daemon):
    """Requests by method and path, with N for the ids of containers."""
    paths = (f"{m} {re.sub(r'[0-9a-f]{64}', 'N', path)}" for m, path, _ in daemon.calls)
    return Counter(path for path in paths if path != "GET /version")


LOOK = {"GET /containers/json": 1, "GET /volumes": 1, "GET /images/sha256:1/json": 1}
VERBS = {
    "status": (lambda runner: runner.status(HANDLE), LOOK),
    "describe": (lambda runner: runner.describe(HANDLE), LOOK),
    "list": (
        lambda runner: runner.list("local_docker"),
        {"GET /containers/json": 1, "GET /volumes": 1},
    ),
    "log": (
        lambda runner: [*runner.log_blocks(HANDLE)],
        {**LOOK, "GET /containers/N/logs": "replicas"},
    ),
    "cancel": (
        lambda runner: runner.cancel(HANDLE),
        {**LOOK, "POST /volumes/create": 1, "POST /containers/N/stop": "replicas"},
    ),
    "delete": (
        lambda runner: runner.delete(HANDLE),
        {
            **LOOK,
            "POST /containers/N/stop": "replicas",
            "POST /containers/N/wait": "replicas",
            "GET /containers/json": 3,  # what came in between, and whether others need the network
            "DELETE /containers/N": "replicas",
            "DELETE /volumes/torchx-cancelled-job-x1": 1,
            "DELETE /volumes/torchx-failed-job-x1": 1,
            "GET /networks": 1,
            "DELETE /networks/n": 1,
        },
    ),
}


@pytest.mark.parametrize("replicas", [3, 300])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_asks_once_and_gives_each_container_one_order(connected, verb, replicas):
    engine = Engine(*["running"] * replicas)
    # they end at once, since what is followed here is the number of requests
    scheduler, daemon = connected(engine.routes())
    runner = Runner("test", {"local_docker": lambda session_name, **_: scheduler})
    call, expected = VERBS[verb]
    call(runner)
    assert asked(daemon) == {
        path: replicas if count == "replicas" else count for path, count in expected.items()
    }


def test_records_are_asked_for_once_of_what_failed(connected):
    engine = Engine(0, 3, 3, "running")
    scheduler, daemon = connected(engine.routes())
    for _ in range(3):
        scheduler.snapshot("job-x1")
    assert asked(daemon) == {
        "GET /containers/json": 3,
        "GET /volumes": 3,
        "GET /images/sha256:1/json": 1,
        "GET /containers/N/json": 2,
    }


def test_records_are_asked_for_each_time_of_what_may_be_retried(connected):
    engine = Engine("running", "running", labels={"torchx.pytorch.org/max-retries": "3"})
    engine.records[engine.rows[0]["Id"]] = {"RestartCount": 2}
    scheduler, daemon = connected(engine.routes())
    assert scheduler.describe("job-x1").num_restarts == 2
    engine.records[engine.rows[0]["Id"]] = {"RestartCount": 3}
    assert scheduler.describe("job-x1").num_restarts == 3
    assert asked(daemon)["GET /containers/N/json"] == 4


def test_the_failed_replicas_and_their_causes_take_one_look(connected):
    engine = Engine(3, 0)
    scheduler, daemon = connected(engine.routes())
    (failed,) = scheduler.failed_replicas("job-x1")
    assert failed.last_lines == ["hello"]
    counts = asked(daemon)
    assert counts["GET /containers/json"] == counts["GET /containers/N/json"] == 1
    assert {path for path in counts if "logs" in path} == {"GET /containers/N/logs"}


def test_logs_of_one_output_ask_for_that(connected):
    scheduler, daemon = connected(Engine(0).routes())
    assert [*scheduler.log_iter("job-x1", "worker", streams=Stream.STDOUT)] == ["hello\n"]
    (query,) = [query for _, path, query in daemon.calls if path.endswith("/logs")]
    assert (query["stdout"], query["stderr"], query["tail"]) == ("1", "0", "all")
