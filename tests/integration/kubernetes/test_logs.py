"""Each line of an app comes once and in order, wherever its streams are cut."""

import random
from collections import defaultdict
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler
from torchx.specs import AppDef, AppState, RetryPolicy, Role
from torchx.specs.overlays import JOIN, set_overlay

from .conftest import OPTS, ended

LINES = 600
LOGS = "^GET .*/log"
SCRIPT = f"""
i=0
while [ $i -lt {LINES} ]; do
    echo "${{TORCHX_ATTEMPT:-0}} line $i"
    i=$((i + 1))
    [ $((i % 200)) != 0 ] || sleep 0.2
done
"""


def an_app(script: str = SCRIPT, replicas: int = 3, **more: Any) -> AppDef:
    role = Role("r", "any", entrypoint="sh", args=["-c", script], num_replicas=replicas, **more)
    return AppDef("app", [role])


def cut_anywhere(cluster: FakeKube, rng: random.Random) -> None:
    """Lets many streams end too early, as if that was all or not, and others fail."""
    for clean in (False, True):
        places = [rng.randint(0, 40_000) for _ in range(20)]
        cluster.fault("cut", LOGS, times=15, places=places, clean=clean, skip=rng.randint(0, 3))
    cluster.fault("drop", LOGS, times=2, skip=rng.randint(0, 9))
    cluster.fault("status", LOGS, times=2, code=500, skip=rng.randint(0, 9))


def expected(attempt: int = 0) -> list[str]:
    return [f"{attempt} line {i}" for i in range(LINES)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("follow", [True, False])
def test_each_line_of_each_replica_comes_once(
    cluster: FakeKube, scheduler: KubernetesScheduler, seed: int, follow: bool
) -> None:
    app_id = scheduler.submit(an_app(), OPTS)
    if not follow:
        assert ended(scheduler, app_id).state is AppState.SUCCEEDED
    cut_anywhere(cluster, random.Random(seed))
    found: dict[int, str] = defaultdict(str)
    for block in scheduler.log_blocks(app_id, should_tail=follow):
        found[block.replica] += block.text
    assert {k: text.splitlines() for k, text in found.items()} == {k: expected() for k in range(3)}


def test_containers_beside_the_role_come_too_and_once(
    cluster: FakeKube, scheduler: KubernetesScheduler
) -> None:
    app = an_app(replicas=1)
    beside = {"name": "side", "image": "any", "command": ["sh", "-c", SCRIPT]}
    first = {"name": "first", "image": "any", "command": ["sh", "-c", "echo begin"]}
    overlay = {"spec": {JOIN("containers", on="name"): [beside], "initContainers": [first]}}
    set_overlay(app.roles[0], "kubernetes", "V1Pod", overlay)
    app_id = scheduler.submit(app, OPTS)
    cut_anywhere(cluster, random.Random(7))
    lines = [line.rstrip("\n") for line in scheduler.log_iter(app_id, "r", 0, should_tail=True)]
    assert [line for line in lines if line.startswith("first ")] == ["first begin"]
    of_side = [line.removeprefix("side ") for line in lines if line.startswith("side ")]
    assert of_side == expected()
    assert [line for line in lines if line[0] == "0"] == expected()


def test_all_attempts_come_once(cluster: FakeKube, scheduler: KubernetesScheduler) -> None:
    retried = {"max_retries": 2, "retry_policy": RetryPolicy.REPLICA}
    app = an_app(f"{SCRIPT}\n[ $TORCHX_ATTEMPT = 2 ]", replicas=2, **retried)
    app_id = scheduler.submit(app, OPTS)
    cut_anywhere(cluster, random.Random(8))
    found: dict[tuple[int, int], str] = defaultdict(str)
    for block in scheduler.log_blocks(app_id, should_tail=True):
        found[block.replica, block.attempt] += block.text
    assert {key: text.splitlines() for key, text in found.items()} == {
        (k, attempt): expected(attempt) for k in range(2) for attempt in range(3)
    }
    again = "".join(block.text for block in scheduler.log_blocks(app_id, [("r", 1)], attempt=1))
    assert again.splitlines() == expected(1)


def test_logs_that_the_cluster_deleted_are_said_to_be_gone(
    scheduler: KubernetesScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    app_id = scheduler.submit(an_app("echo begun; sleep 100", replicas=1), OPTS)
    lines = iter(scheduler.log_iter(app_id, "r", 0, should_tail=True))
    assert next(lines) == "begun\n"
    scheduler.cancel(app_id)
    assert [*lines] == []
    ended(scheduler, app_id)
    caplog.clear()
    assert [*scheduler.log_iter(app_id, "r", 0)] == []
    assert "no logs of `r/0`: the pods are deleted, or never ran" in caplog.messages


@pytest.mark.parametrize(
    "words",
    [
        "unable to retrieve container logs for containerd://0123",
        'failed to try resolving symlinks in path "/var/log/pods/x/r/0.log": no such file\n',
    ],
)
@pytest.mark.parametrize("follow", [False, True])
def test_words_of_a_node_about_a_log_that_is_gone_are_no_lines_of_it(
    cluster: FakeKube,
    scheduler: KubernetesScheduler,
    caplog: pytest.LogCaptureFixture,
    words: str,
    follow: bool,
) -> None:
    app_id = scheduler.submit(an_app("echo begun", replicas=1), OPTS)
    ended(scheduler, app_id)
    cluster.fault("text", "^GET .*/log", times=-1, message=words)
    assert [*scheduler.log_iter(app_id, "r", 0, should_tail=follow)] == []
    assert "the cluster has deleted the rest of the log of pod" in caplog.text
