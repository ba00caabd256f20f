"""A submission is done once or not at all, whatever happens to it and wherever it is killed."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.errors import TorchXError
from torchx.schedulers._kube.apps.labels import OURS
from torchx.schedulers._kube.calls import LOCAL_QUEUES, PODS, Selection
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler
from torchx.specs import AppState, is_terminal

from .conftest import NS, OPTS, Notes, ended, left, until

LAUNCH = """
import json, sys
from torchx.schedulers.kubernetes_scheduler import create_scheduler
from torchx.specs import AppDef, Role
name, roles, opts = json.load(sys.stdin)
app = AppDef(name, [Role(**role) for role in roles])
print("begun", flush=True)
print(create_scheduler("killed").submit(app, opts), flush=True)
"""
WRITES = "^(POST|PATCH|DELETE) "
SHAPES = [(1,), (2,), (2, 1)]
"""Replicas of the roles: one object, a Job and a Service, several Jobs."""


def expected(replicas: tuple[int, ...]) -> Counter[str]:
    return Counter(f"r{i}/{k}" for i, count in enumerate(replicas) for k in range(count))


def writes_of(cluster: FakeKube) -> int:
    return sum(r["method"] in ("POST", "PATCH") for r in cluster.requests())


@pytest.fixture
def queue(kube: KubeClient) -> str:
    body = {"apiVersion": LOCAL_QUEUES.api_version, "kind": "LocalQueue", "metadata": {"name": "q"}}
    kube.create(LOCAL_QUEUES, NS, {**body, "spec": {"clusterQueue": "c"}})
    return "q"


def check_outcome(
    scheduler: KubernetesScheduler, kube: KubeClient, notes: Notes, replicas: tuple[int, ...]
) -> str:
    """The one app, if there is one, runs as a whole or not at all, and can be deleted."""
    rows = [row for row in scheduler.list() if row.name == "app"]
    assert len(rows) <= 1, rows
    if not rows:
        assert left(kube) == []
        outcome = "nothing"
    else:
        outcome = _outcome_of(scheduler, notes, rows[0].app_id, replicas)
        scheduler.delete(rows[0].app_id)
        until(lambda: not left(kube))
    assert notes.ran() == (expected(replicas) if outcome == "whole" else Counter())
    return outcome


def _outcome_of(
    scheduler: KubernetesScheduler, notes: Notes, app_id: str, replicas: tuple[int, ...]
) -> str:
    def settled() -> Any:
        found = scheduler.describe(app_id)
        assert found is not None
        return found if is_terminal(found.state) or "half-submitted" in found.msg else None

    found = until(settled)
    if found.state is AppState.SUCCEEDED:
        return "whole"
    assert found.state is AppState.PENDING, found
    # what runs on the node comes after what was begun before, so this is a fence
    fence = notes.app(1, name="fence")
    fence.roles[0].args = ["-c", "true"]
    fence_id = scheduler.submit(fence, OPTS)
    assert ended(scheduler, fence_id).state is AppState.SUCCEEDED
    scheduler.delete(fence_id)
    return "half"


class Launcher:
    """A process that submits the app, and can be killed."""

    def __init__(self, notes: Notes, replicas: tuple[int, ...], opts: dict[str, Any]) -> None:
        self._app = notes.app(*replicas)
        self._opts = opts

    def __enter__(self) -> "subprocess.Popen[str]":
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        roles = [
            {
                "name": role.name,
                "image": role.image,
                "entrypoint": role.entrypoint,
                "args": role.args,
                "num_replicas": role.num_replicas,
            }
            for role in self._app.roles
        ]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([self._app.name, roles, self._opts]))
        self._process.stdin.close()
        assert self._process.stdout.readline() == "begun\n"
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


# -- killed --------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["slow", "late"])
@pytest.mark.parametrize("replicas", SHAPES)
@pytest.mark.parametrize("queued", [False, True], ids=["", "queued"])
def test_killed_at_any_request_nothing_runs_by_halves(
    cluster: FakeKube,
    scheduler: KubernetesScheduler,
    kube: KubeClient,
    notes: Notes,
    request: pytest.FixtureRequest,
    replicas: tuple[int, ...],
    queued: bool,
    when: str,
) -> None:
    """Killed before or after the server carried out the request, which may be later than that."""
    opts = {**OPTS, "queue": request.getfixturevalue("queue")} if queued else OPTS
    outcomes = []
    for nth in range(20):
        cluster.requests(forget=True)
        cluster.fault(when, WRITES, skip=nth, seconds=0.3)
        with Launcher(notes, replicas, opts) as process:
            until(lambda n=nth, p=process: writes_of(cluster) > n or p.poll() is not None)
            process.send_signal(signal.SIGKILL)
            done = process.wait() == 0
        until(lambda: all(r["code"] for r in cluster.requests()))
        cluster.no_faults()
        outcomes.append(check_outcome(scheduler, kube, notes, replicas))
        if done:
            break
        notes.forget()
    assert outcomes[-1] == "whole", outcomes
    assert outcomes == sorted(outcomes, key=["nothing", "half", "whole"].index)
    assert len(outcomes) > len(replicas)


def undone(cluster: FakeKube, kube: KubeClient) -> bool:
    """True if the gate was created, so that all could run, and everything was deleted again."""
    until(lambda: all(request["code"] for request in cluster.requests()))
    created = any(
        request["method"] == "POST" and "/configmaps" in request["target"]
        for request in cluster.requests()
    )
    return created and not left(kube)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_when_all_may_run_the_app_is_cancelled(
    cluster: FakeKube,
    scheduler: KubernetesScheduler,
    kube: KubeClient,
    notes: Notes,
    number: signal.Signals,
) -> None:
    cluster.requests(forget=True)
    cluster.fault("late", "^POST .*/configmaps", seconds=2)
    with Launcher(notes, (2, 1, 1), OPTS) as process:
        until(notes.ran)
        process.send_signal(number)
        process.wait()
    cluster.no_faults()
    assert undone(cluster, kube)
    assert [row for row in scheduler.list() if row.name == "app"] == []
    assert notes.ran() <= expected((2, 1, 1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_at_random_moments_nothing_runs_by_halves(
    cluster: FakeKube,
    scheduler: KubernetesScheduler,
    kube: KubeClient,
    notes: Notes,
    number: signal.Signals,
) -> None:
    rng = random.Random(number)
    for _ in range(6):
        cluster.requests(forget=True)
        with Launcher(notes, (2, 1, 1), OPTS) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.05, 0.25))
            process.send_signal(number)
            process.wait()
        if undone(cluster, kube):  # the signal came when it was launched: it was cancelled
            until(lambda: not kube.list_objects(Selection(PODS, NS, OURS)).items)
            assert notes.ran() <= expected((2, 1, 1))
        else:
            check_outcome(scheduler, kube, notes, (2, 1, 1))
        notes.forget()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("replicas", SHAPES)
def test_interrupted_while_the_server_takes_its_time_nothing_is_left(
    cluster: FakeKube,
    scheduler: KubernetesScheduler,
    kube: KubeClient,
    notes: Notes,
    replicas: tuple[int, ...],
    number: signal.Signals,
) -> None:
    cluster.requests(forget=True)
    cluster.fault("slow", "^POST .*jobs", seconds=0.4)
    with Launcher(notes, replicas, OPTS) as process:
        until(lambda: writes_of(cluster) > 0)
        process.send_signal(number)
        assert process.wait() != 0
    until(lambda: all(r["code"] for r in cluster.requests()))
    assert left(kube) == []
    assert scheduler.list() == []


# -- faults --------------------------------------------------------------------------------------

FAULTS: list[dict[str, Any]] = [
    {"action": "drop"},
    {"action": "lose"},
    {"action": "truncate", "places": [0, 30, 300]},
    {"action": "status", "code": 429, "headers": {"Retry-After": "0"}},
    {"action": "status", "code": 429},
    {"action": "status", "code": 500},
    {"action": "status", "code": 503},
    {"action": "after", "code": 504},
    {"action": "status", "code": 409, "reason": "Conflict"},
    {"action": "status", "code": 403, "reason": "Forbidden"},
    {"action": "status", "code": 401, "reason": "Unauthorized"},
    {"action": "status", "code": 409, "reason": "AlreadyExists"},
]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(24))
def test_whatever_fails_an_app_is_submitted_once_or_not_at_all(
    cluster: FakeKube,
    scheduler: KubernetesScheduler,
    kube: KubeClient,
    notes: Notes,
    request: pytest.FixtureRequest,
    seed: int,
) -> None:
    rng = random.Random(seed)
    replicas = rng.choice([(1,), (3,), (1, 1), (2, 1), (1, 2, 1)])
    opts = {**OPTS, "queue": request.getfixturevalue("queue")} if rng.random() < 0.3 else OPTS
    for _ in range(rng.randint(1, 3)):
        # the last of the kinds cannot be got over; a deletion that is refused is another matter
        match = rng.choice(["^(POST|PATCH) ", "^POST .*jobs", "^PATCH ", "^POST .*configmaps"])
        cluster.fault(**rng.choice(FAULTS), match=match, skip=rng.randint(0, 3), times=1)
    error: TorchXError | None = None
    try:
        app_id = scheduler.submit(notes.app(*replicas), opts)
    except TorchXError as err:
        error = err
    cluster.no_faults()
    if error is None:
        assert [row.app_id for row in scheduler.list()] == [app_id]
        assert check_outcome(scheduler, kube, notes, replicas) == "whole"
    else:
        assert len(str(error).splitlines()) == 1
        until(lambda: not left(kube))
        assert check_outcome(scheduler, kube, notes, replicas) == "nothing"


def test_a_pause_that_the_server_asks_for_is_kept(
    cluster: FakeKube, scheduler: KubernetesScheduler, notes: Notes
) -> None:
    cluster.fault("status", "^POST ", code=429, headers={"Retry-After": "1"})
    begun_s = time.monotonic()
    app_id = scheduler.submit(notes.app(1), OPTS)
    assert time.monotonic() - begun_s >= 1
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED


def test_the_same_request_is_not_carried_out_twice(
    scheduler: KubernetesScheduler, notes: Notes
) -> None:
    dryrun = scheduler.submit_dryrun(notes.app(2, 1), OPTS)
    app_id = scheduler.schedule(dryrun)
    with pytest.raises(TorchXError, match="there is an app"):
        scheduler.schedule(dryrun)
    assert [row.app_id for row in scheduler.list()] == [app_id]
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED
    assert notes.ran() == expected((2, 1))
