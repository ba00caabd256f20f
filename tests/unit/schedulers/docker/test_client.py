"""A daemon that is not there, refuses, breaks connections or has another clock."""

import io
import json
import socket
import sys
import time

import pytest

pytest.importorskip("docker", reason="needs the Python package docker")

from tests.unit.schedulers.docker.fake_daemon import row
from torchx.errors import BackendUnavailable, JobStartError
from torchx.schedulers.docker_scheduler import create_scheduler, ensure_network, has_docker
from torchx.specs import AppDef, AppState, Resource, Role

LIST = ("GET", "/containers/json")
NETWORKS = ("GET", "/networks")


# -- no daemon ------------------------------------------------------------------------------------


def test_a_socket_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(BackendUnavailable) as caught:
        create_scheduler("test").list()
    assert str(caught.value) == (
        f"the Docker daemon at unix://{tmp_path}/none.sock cannot be reached: "
        "No such file or directory; start Docker, or set DOCKER_HOST to where it runs"
    )
    assert not has_docker()
    with pytest.raises(BackendUnavailable):
        ensure_network()


def test_a_socket_on_which_nobody_listens(monkeypatch, tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "docker.sock"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        with pytest.raises(BackendUnavailable, match="Connection refused"):
            create_scheduler("test").describe("x-1")


@pytest.mark.parametrize("host", ["tcp://", "nothing://x", "tcp://localhost:port"])
def test_an_address_that_is_none(monkeypatch, host):
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(BackendUnavailable, match=host):
        create_scheduler("test").list()


def test_a_daemon_that_refuses_everybody(connected):
    scheduler, _ = connected({("GET", "/version"): (500, {"message": "the daemon is full"})})
    with pytest.raises(BackendUnavailable, match=r"cannot be reached: .*the daemon is full"):
        scheduler.list()


# -- faults in between ----------------------------------------------------------------------------


def test_a_broken_connection_is_tried_again(connected):
    answers = [None, (503, {"message": "starting"}), (200, [row("running", "Up 1 second")])]
    scheduler, daemon = connected({LIST: lambda *_: answers.pop(0)})
    (app,) = scheduler.list()
    assert (app.app_id, app.state, app.name) == ("job-x1", AppState.RUNNING, "job")
    assert len(daemon.made("GET", "/containers/json")) == 3


def test_what_stays_broken_is_told(connected):
    scheduler, daemon = connected({LIST: None})
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        scheduler.describe("job-x1")
    assert len(daemon.made("GET", "/containers/json")) == 3


def test_a_list_is_one_call_and_one_for_cancelled_apps(connected):
    rows = [row("exited", f"Exited ({k}) 1 second ago", k) for k in range(3)]
    scheduler, daemon = connected({LIST: (200, rows)})
    assert [app.state for app in scheduler.list()] == [AppState.FAILED]
    paths = [path for _, path, _ in daemon.calls]
    assert paths == ["/version", "/containers/json", "/volumes"]


def test_an_exit_code_that_the_list_does_not_tell_is_asked_for(connected):
    record = {"State": {"ExitCode": 0, "Status": "exited"}}
    scheduler, _ = connected(
        {LIST: (200, [row("exited", "Beendet")]), ("GET", "/containers/0"): (200, record)}
    )
    assert [app.state for app in scheduler.list()] == [AppState.SUCCEEDED]


def test_a_container_that_vanishes_meanwhile_does_no_harm(connected):
    scheduler, _ = connected({LIST: (200, [row("exited", "Exited (3) 1 second ago")])})
    found = scheduler.describe("job-x1")
    assert found.state is AppState.FAILED
    assert found.msg == "replica worker/0 exited with code 3"
    (failed,) = scheduler.failed_replicas("job-x1")
    assert (failed.exit_code, failed.last_lines) == (3, [])


# -- starting -------------------------------------------------------------------------------------


def start_routes(create, start=(204, None), rows=()):
    return {
        LIST: (200, [*rows]),
        ("GET", "/images"): (200, {"Id": "sha256:1", "RepoTags": []}),
        NETWORKS: (200, [{"Name": "torchx", "Id": "n"}]),
        ("POST", "/containers/create"): create,
        ("GET", "/containers/"): lambda path, *_: (200, {"Id": path.split("/")[2], "State": {}}),
        ("POST", "/containers/"): start,
        ("DELETE", "/containers/"): (204, None),
    }


def app(replicas):
    role = Role("w", "sha256:1", entrypoint="e", num_replicas=replicas, resource=Resource(1, 0, 1))
    return AppDef("job", [role])


PULL = tuple(
    b'{"status": "%s", "id": "layer1"}\r\n' % status
    for status in (b"Downloading", b"Pull complete")
)


@pytest.mark.parametrize(
    ("terminal", "cfg", "shown"),
    [(True, {}, True), (True, {"quiet": True}, False), (False, {}, False)],
)
def test_the_progress_of_a_pull_is_shown_on_a_terminal(
    connected, monkeypatch, terminal, cfg, shown
):
    class Screen(io.StringIO):
        def isatty(self):
            return terminal

    screen = Screen()
    create = (201, {"Id": "c", "Warnings": []})
    routes = {("POST", "/images/create"): (200, PULL), **start_routes(create)}
    scheduler, daemon = connected(routes)
    job = app(1)
    job.roles[0].image = "host.io/some:1"
    info = scheduler.submit_dryrun(job, cfg)
    monkeypatch.setattr(sys, "stderr", screen)
    scheduler.schedule(info)
    assert daemon.made("POST", "/images/create")
    assert ("layer1: Pull complete" in screen.getvalue()) is shown
    assert shown or screen.getvalue() == ""


def test_nothing_starts_before_all_are_created(connected):
    def create(path, query, body):
        return 201, {"Id": query["name"], "Warnings": []}

    scheduler, daemon = connected(start_routes(create))
    scheduler.submit(app(20), {})
    posts = [p for m, p, _ in daemon.calls if m == "POST"]
    assert posts[:20] == ["/containers/create"] * 20
    assert len({p for p in posts[20:] if p.endswith("/start")}) == len(posts[20:]) == 20


@pytest.mark.parametrize("answer", [None, (500, {"message": "no space left on device"})])
def test_what_was_created_is_removed_when_one_cannot_be(connected, answer):
    def create(path, query, body):
        return answer if query["name"].endswith("-2") else (201, {"Id": query["name"]})

    rows = [row("created", "Created", k) for k in range(2)]
    scheduler, daemon = connected(start_routes(create, rows=rows))
    with pytest.raises((JobStartError, BackendUnavailable)) as caught:
        scheduler.submit(app(4), {})
    if answer:
        assert "no space left on device" in str(caught.value)
    removed = set(daemon.made("DELETE", "/containers/"))
    assert removed == {f"/containers/{r['Id']}" for r in rows}
    assert not [p for p in daemon.made("POST", "/containers/") if p.endswith("/start")]


def test_what_cannot_be_removed_at_once_is_removed_later_and_leaves_no_other(connected):
    rows = [row("created", "Created", k) for k in range(20)]
    removed = []

    def remove(path, query, body):
        if not removed.count(path) and path.endswith(rows[0]["Id"]):
            removed.append(path)
            return 500, {"message": "device or resource busy"}
        rows[:] = [one for one in rows if not path.endswith(one["Id"])]
        return 204, None

    routes = start_routes((500, {"message": "no space left on device"}))
    routes[LIST] = lambda *_: (200, rows)
    routes["DELETE", "/containers/"] = remove
    scheduler, daemon = connected(routes)
    with pytest.raises(JobStartError, match="no space left on device"):
        scheduler.submit(app(20), {})
    assert rows == []
    assert len(daemon.made("DELETE", "/containers/")) == 21


def test_a_create_is_never_sent_twice(connected):
    scheduler, daemon = connected(start_routes(None))
    with pytest.raises(BackendUnavailable):
        scheduler.submit(app(1), {})
    assert len(daemon.made("POST", "/containers/create")) == 1


def test_a_network_that_was_removed_meanwhile_is_made_again(connected):
    networks = [[{"Name": "torchx", "Id": "n"}], []]
    starts = [(404, {"message": "network torchx not found"}), (204, None)]
    routes = start_routes(lambda p, q, b: (201, {"Id": "c"}), lambda *_: starts.pop(0))
    routes[NETWORKS] = lambda *_: (200, networks.pop(0))
    routes["POST", "/networks/create"] = (409, {"message": "network torchx already exists"})
    scheduler, daemon = connected(routes)
    scheduler.submit(app(1), {})
    assert daemon.made("POST", "/networks/create") == ["/networks/create"]


# -- waiting --------------------------------------------------------------------------------------


def test_an_event_that_is_told_late_is_not_missed(connected):
    now_ns = time.time_ns()

    def die(k: int, at_ns: int) -> bytes:
        event = {"Action": "die", "timeNano": at_ns, "Actor": {"ID": str(k)}}
        return json.dumps(event).encode() + b"\n"

    late, early = die(1, now_ns + 1000), die(0, now_ns)
    answers = [(), (late,), (early, late), (early, late), ()]
    scheduler, daemon = connected(
        {
            LIST: (200, [row("running", "Up 1 second", k) for k in range(2)]),
            ("GET", "/events"): lambda *_: (200, answers.pop(0)),
            ("GET", "/containers/"): (200, {"State": {}}),
        }
    )
    scheduler.describe("job-x1")
    scheduler.wait_for_change("job-x1", 60)  # nothing has happened yet, then the one
    assert len(answers) == 3
    scheduler.wait_for_change("job-x1", 60)  # the other had happened before it
    assert len(answers) == 2
    scheduler.wait_for_change("job-x1", 0.5)  # both are known
    assert answers == []
    # each container is asked for, so that its new state is in the next list
    assert {"/containers/0/json", "/containers/1/json"} <= set(daemon.made("GET", "/containers/"))


def test_waiting_asks_in_the_time_of_a_daemon_with_another_clock(connected):
    ahead_s = 3600
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000000001Z", time.gmtime(time.time() + ahead_s))
    scheduler, daemon = connected(
        {("GET", "/info"): (200, {"SystemTime": moment}), ("GET", "/events"): (200, ())}, tcp=True
    )
    before = time.time()
    scheduler.wait_for_change("job-x1", 0.01)
    asked = [query for _, path, query in daemon.calls if path == "/events"]
    assert asked
    for query in asked:
        assert abs(float(query["since"]) - before - ahead_s) < 60
        assert float(query["until"]) >= float(query["since"])
