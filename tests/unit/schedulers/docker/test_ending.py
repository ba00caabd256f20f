"""Cancelled, ended for a failure, half-started: what is asked of the daemon and noted there."""

import os
import subprocess
import sys
import time

import pytest

pytest.importorskip("docker", reason="needs the Python package docker")

from tests.unit.schedulers.docker.engine import Engine
from torchx.errors import TorchXError
from torchx.schedulers.docker_scheduler._launcher import START_S, identity, may_start
from torchx.specs import AppState

END = {"torchx.pytorch.org/on-failure": "end"}
CANCELLED, FAILED, RUNNING = AppState.CANCELLED, AppState.FAILED, AppState.RUNNING


def states(scheduler):
    found = scheduler.snapshot("job-x1")
    return found.state, [replica.state for replica in found.replicas]


def stops(daemon):
    return len([path for path in daemon.made("POST", "/containers/") if path.endswith("/stop")])


def test_a_cancel_is_noted_and_ends_what_runs(connected):
    engine = Engine("running", 0, "running")
    scheduler, daemon = connected(engine.routes())
    scheduler.cancel("job-x1")
    assert states(scheduler) == (CANCELLED, [CANCELLED, AppState.SUCCEEDED, CANCELLED])
    assert stops(daemon) == 2
    assert scheduler.describe("job-x1").msg == "cancelled"


def test_an_app_that_is_being_cancelled_says_so(connected):
    engine = Engine("running")
    scheduler, _ = connected(engine.routes())
    scheduler.cancel("job-x1")
    engine.rows[0].update(State="running", Status="Up")  # it takes its time
    found = scheduler.describe("job-x1")
    assert (found.state, found.msg) == (RUNNING, "being cancelled")


def test_what_ended_by_itself_while_it_was_cancelled_keeps_its_state(connected):
    engine = Engine("running", "running")
    engine.ended_before.add(engine.rows[1]["Id"])
    scheduler, _ = connected(engine.routes())
    scheduler.cancel("job-x1")
    assert states(scheduler) == (CANCELLED, [CANCELLED, FAILED])


def test_an_app_that_ended_by_itself_while_it_was_cancelled_is_not_cancelled(connected):
    engine = Engine("running")
    engine.ended_before.add(engine.rows[0]["Id"])
    scheduler, _ = connected(engine.routes())
    scheduler.cancel("job-x1")
    assert engine.volumes == {}
    assert states(scheduler) == (FAILED, [FAILED])


def test_what_refuses_to_end_is_an_error_and_not_noted(connected):
    engine = Engine("running", "running")
    engine.refusing.add(engine.rows[1]["Id"])
    scheduler, _ = connected(engine.routes())
    with pytest.raises(TorchXError, match="cannot be killed"):
        scheduler.cancel("job-x1")
    engine.rows[1].update(State="exited", Status="Exited (0) now")
    assert states(scheduler)[1] == [CANCELLED, AppState.SUCCEEDED]


def test_the_others_are_ended_after_a_failure_and_the_app_has_failed(connected):
    engine = Engine("running", 3, labels=END)
    scheduler, daemon = connected(engine.routes())
    first = scheduler.end_after_failure("job-x1")
    assert (first.key, first.ending) == (("worker", 1), "exited with code 3")
    assert stops(daemon) == 1
    assert states(scheduler) == (FAILED, [CANCELLED, FAILED])
    assert scheduler.describe("job-x1").msg == "replica worker/1 exited with code 3"


def test_that_the_others_are_ended_is_told_only_if_they_are(connected):
    engine = Engine("running", 3, labels=END)
    scheduler, _ = connected(engine.routes())
    assert scheduler.describe("job-x1").msg == "replica worker/1 exited with code 3"
    scheduler.end_after_failure("job-x1")
    engine.rows[0].update(State="running", Status="Up")  # it takes its time
    assert scheduler.describe("job-x1").msg.endswith("code 3, ending the other replicas")


@pytest.mark.parametrize("labels", [{}, {"torchx.pytorch.org/on-failure": "wait"}])
def test_the_others_go_on_where_that_is_wanted_or_not_known(connected, labels):
    scheduler, daemon = connected(Engine("running", 3, labels=labels).routes())
    assert scheduler.end_after_failure("job-x1") is None
    assert stops(daemon) == 0


def test_two_who_watch_end_the_others_once(connected):
    """The second finds the mark of the first, and does not take it for its own."""
    engine = Engine("running", "running", 3, labels=END)
    scheduler, _ = connected(engine.routes())
    early = scheduler.snapshot("job-x1")
    scheduler.end_rest(early)
    scheduler.end_rest(early)
    assert states(scheduler) == (FAILED, [CANCELLED, CANCELLED, FAILED])


def test_a_cancel_while_the_others_are_ended_makes_the_app_cancelled(connected):
    engine = Engine("running", "running", 3, labels=END)
    scheduler, _ = connected(engine.routes())
    scheduler.end_after_failure("job-x1")
    engine.rows[0].update(State="running", Status="Up")
    scheduler.cancel("job-x1")
    assert states(scheduler)[0] is CANCELLED
    assert scheduler.failed_replicas("job-x1") == []


def test_delete_removes_marks_and_the_network_with_the_last_app(connected):
    engine = Engine("running", 3, labels=END)
    scheduler, _ = connected(engine.routes())
    scheduler.end_after_failure("job-x1")
    scheduler.cancel("job-x1")
    scheduler.delete("job-x1")
    assert (engine.rows, engine.volumes, engine.networks) == ([], {}, [])


def test_a_network_of_others_is_kept(connected):
    engine = Engine(0)
    engine.networks[0]["Labels"] = {}
    scheduler, _ = connected(engine.routes())
    scheduler.delete("job-x1")
    assert [network["Name"] for network in engine.networks] == ["torchx"]


# -- half-started ---------------------------------------------------------------------------------


def launched(launcher, *states, created_s=None):
    engine = Engine(*states, labels={**END, "torchx.pytorch.org/launcher": launcher})
    for one in engine.rows:
        one["Created"] = int(time.time()) if created_s is None else created_s
    return engine


def ended_process() -> str:
    """The identity of a process that has ended."""
    code = "from torchx.schedulers.docker_scheduler._launcher import identity; print(identity())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_app_whose_launcher_lives_is_being_started(connected):
    scheduler, _ = connected(launched(identity(), "running", "created").routes())
    found = scheduler.describe("job-x1")
    assert (found.state, found.msg) == (RUNNING, "1 of 2 replicas are not started yet")


def test_an_app_whose_launcher_was_killed_says_so_and_can_be_deleted(connected):
    engine = launched(ended_process(), "running", "created", "created")
    scheduler, _ = connected(engine.routes())
    assert states(scheduler) == (RUNNING, [RUNNING, FAILED, FAILED])
    assert "half-started: 2 of 3" in scheduler.describe("job-x1").msg
    scheduler.cancel("job-x1")
    assert states(scheduler)[0] is CANCELLED
    scheduler.delete("job-x1")
    assert engine.rows == []


def test_an_app_of_which_nothing_was_started_has_failed(connected):
    engine = launched(ended_process(), "created", "created")
    scheduler, _ = connected(engine.routes())
    assert states(scheduler)[0] is FAILED
    assert [app.state for app in scheduler.list()] == [FAILED]
    (first, _) = scheduler.failed_replicas("job-x1")
    assert (first.exit_code, first.reason) == (None, "was never started")


def test_a_launcher_that_cannot_be_looked_at_has_its_time():
    now = 1_000_000.0
    for launcher in ("", "another-boot:4026531836:1:1", "nonsense"):
        assert may_start(launcher, int(now), now)
        assert not may_start(launcher, int(now) - START_S - 1, now)


def test_a_process_is_told_from_a_later_one_with_its_number():
    mine = identity()
    assert mine.split(":")[2] == str(os.getpid())
    now = time.time()
    assert may_start(mine, int(now), now)
    boot, namespace, pid, ticks = mine.split(":")
    assert not may_start(f"{boot}:{namespace}:{pid}:{int(ticks) - 1}", int(now), now)
    assert not may_start(ended_process(), int(now), now)


def test_the_launcher_is_noted_on_each_container(connected):
    from tests.unit.schedulers.docker.test_client import app, start_routes

    bodies = []

    def create(path, query, body):
        bodies.append(body)
        return 201, {"Id": query["name"], "Warnings": []}

    scheduler, _ = connected(start_routes(create))
    info = scheduler.submit_dryrun(app(2), {})
    shown = str(info)
    scheduler.schedule(info)
    assert [body["Labels"]["torchx.pytorch.org/launcher"] for body in bodies] == [identity()] * 2
    assert str(info) == shown


def test_an_app_that_is_cancelled_while_it_is_started_is_ended(connected):
    from tests.unit.schedulers.docker.test_client import app, start_routes

    routes = start_routes(lambda path, query, body: (201, {"Id": query["name"]}))
    mark = {"Labels": {"torchx.pytorch.org/ended-app": "x"}}
    scheduler, daemon = connected({**routes, ("GET", "/volumes"): (200, {"Volumes": [mark]})})
    scheduler.submit(app(2), {})
    assert stops(daemon) == 2
