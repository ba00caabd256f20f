"""Logs of pods that run on the fake cluster, over connections that break."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fake_kube.server import FakeKube
from torchx.schedulers._core.log_query import LogQuery
from torchx.schedulers._kube import errors
from torchx.schedulers._kube.calls import JOBS, PODS, Object, Selection
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.log_sources import LogSource, SourceState, started_sources, state_of
from torchx.schedulers._kube.logs import LogPlan, LogReader, PodLines, View

NS = "default"
OURS = Selection(PODS, NS, "app=x")
FOLLOW = LogQuery(follow=True)


def pod(
    name: str, script: str = "", *, annotations: dict[str, str] | None = None, **spec: Any
) -> Object:
    container = {"name": "main", "image": "i", "command": ["sh", "-c", script]}
    metadata = {"name": name, "labels": {"app": "x"}, "annotations": annotations or {}}
    full = {"restartPolicy": "Never", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": full}


def container(name: str, script: str, image: str = "i") -> Object:
    return {"name": name, "image": image, "command": ["sh", "-c", script]}


def all_of(count: int, *, previous: bool = False) -> Callable[[View], LogPlan]:
    """Every container of so many pods, until all pods have ended."""

    def plan(view: View) -> LogPlan:
        pods = view(OURS)
        sources = [s for p in pods for s in started_sources(p, previous=previous)]
        ended = [p for p in pods if p["status"]["phase"] in ("Succeeded", "Failed")]
        return LogPlan(sources, len(ended) >= count)

    return plan


def read(
    kube: KubeClient, count: int, query: LogQuery = FOLLOW, *, previous: bool = False
) -> dict[str, list[str]]:
    """The texts of each container; the names of pods are left out where there is one."""
    texts: dict[str, list[str]] = {}
    with LogReader(kube, {OURS: None}, all_of(count, previous=previous), query) as reader:
        for chunk in reader:
            source = chunk.source
            key = f"{source.pod}/{source.container}/{source.attempt}"
            texts.setdefault(key, []).extend(text.decode() for _, text in chunk.timed())
            assert chunk.end in ("", "done")
    return texts


def log_requests(cluster: FakeKube) -> list[str]:
    return [r["target"] for r in cluster.requests() if "/log?" in r["target"]]


def test_a_log_is_followed_to_its_end_with_times(kube: KubeClient) -> None:
    before_ns = time.time_ns()
    kube.create(PODS, NS, pod("p", "echo one; echo two >&2; printf three"))
    with LogReader(kube, {OURS: None}, all_of(1), FOLLOW) as reader:
        lines = [line for chunk in reader for line in chunk.timed()]
    assert [text for _, text in lines] == [b"one", b"two", b"three"]
    assert all(before_ns <= (time_ns or 0) <= time.time_ns() for time_ns, _ in lines)


def test_lines_come_while_the_program_runs(kube: KubeClient) -> None:
    kube.create(PODS, NS, pod("p", "echo one; sleep 60; echo two"))
    with LogReader(kube, {OURS: None}, all_of(1), FOLLOW) as reader:
        chunk = next(iter(reader))
        assert [text for _, text in chunk.timed()] == [b"one"]


def test_a_pod_that_is_not_there_yet_is_waited_for(kube: KubeClient) -> None:
    with LogReader(kube, {OURS: None}, all_of(1), FOLLOW) as reader:
        kube.create(PODS, NS, pod("late", "echo here"))
        texts = [text for chunk in reader for _, text in chunk.timed()]
    assert texts == [b"here"]


def test_containers_are_read_side_by_side(kube: KubeClient, tmp_path: Any) -> None:
    both = f"test -e {tmp_path}/a -a -e {tmp_path}/b"
    meet = f"touch {tmp_path}/$0; until {both}; do sleep 0.02; done"
    containers = [
        {"name": n, "image": "i", "command": ["sh", "-c", f"echo {n}1; {meet}; echo {n}2", n]}
        for n in ("a", "b")
    ]
    init = container("init", "echo ready")
    kube.create(PODS, NS, pod("p", containers=containers, initContainers=[init]))
    assert read(kube, 1) == {
        "p/init/0": ["ready"],
        "p/a/0": ["a1", "a2"],
        "p/b/0": ["b1", "b2"],
    }


def test_a_snapshot_does_not_follow(cluster: FakeKube, kube: KubeClient) -> None:
    kube.create(PODS, NS, pod("p", "echo one; sleep 60"))
    with LogReader(kube, {OURS: None}, all_of(1), FOLLOW) as reader:
        next(iter(reader))
    cluster.requests(forget=True)
    assert read(kube, 1, LogQuery()) == {"p/main/0": ["one"]}
    assert len(cluster.requests()) == 2


def test_only_the_last_lines(kube: KubeClient) -> None:
    kube.create(PODS, NS, pod("p", "seq 100"))
    assert len(read(kube, 1)["p/main/0"]) == 100
    assert read(kube, 1, LogQuery(tail=2)) == {"p/main/0": ["99", "100"]}
    assert read(kube, 1, LogQuery(tail=0)) == {"p/main/0": []}


def test_lines_since_a_time(kube: KubeClient) -> None:
    kube.create(PODS, NS, pod("p", "echo a; sleep 2.1; echo b"))
    with LogReader(kube, {OURS: None}, all_of(1), FOLLOW) as reader:
        lines = [line for chunk in reader for line in chunk.timed()]
    query = LogQuery(since_ns=lines[1][0])
    assert read(kube, 1, query) == {"p/main/0": ["b"]}


def test_attempts_are_kept_apart(kube: KubeClient, tmp_path: Any) -> None:
    script = f"echo run; test -e {tmp_path}/again || {{ touch {tmp_path}/again; exit 1; }}"
    kube.create(PODS, NS, pod("p", f"{script}; echo well", restartPolicy="OnFailure"))
    assert read(kube, 1)["p/main/1"] == ["run", "well"]
    texts = read(kube, 1, LogQuery(), previous=True)
    assert texts == {"p/main/0": ["run"], "p/main/1": ["run", "well"]}


def test_a_pod_that_is_deleted_is_said_to_be_gone(kube: KubeClient) -> None:
    kube.create(PODS, NS, pod("p", "echo one; sleep 60"))
    ends = []

    def plan(view: View) -> LogPlan:
        return LogPlan([s for p in view(OURS) for s in started_sources(p)], bool(ends))

    with LogReader(kube, {OURS: None}, plan, FOLLOW) as reader:
        for chunk in reader:
            if chunk.lines:
                kube.delete(PODS, NS, "p")
                ends.append("deleted")
            last = chunk
    assert last.end == "gone"


@pytest.mark.parametrize("clean", [False, True])
def test_streams_cut_while_the_program_runs_lose_and_double_nothing(
    cluster: FakeKube, kube: KubeClient, clean: bool
) -> None:
    places = [0, 1, 29, 31, 200, 333, 555, 1000]
    cluster.fault("cut", "/log.*follow", times=12, places=places, clean=clean)
    script = "for i in $(seq 1 60); do echo line $i; sleep 0.01; done"
    kube.create(PODS, NS, pod("p", script))
    assert read(kube, 1) == {"p/main/0": [f"line {i}" for i in range(1, 61)]}
    assert len(log_requests(cluster)) > 3


@pytest.mark.parametrize("place", [0, 31, 100, 333])
def test_a_stream_that_only_seems_to_have_ended_is_gone_on_with(
    cluster: FakeKube, kube: KubeClient, place: int
) -> None:
    kube.create(PODS, NS, pod("p", "seq 50"))
    whole = read(kube, 1)
    cluster.fault("cut", "/log", places=[place], clean=True)
    assert read(kube, 1, LogQuery()) == whole
    assert len(whole["p/main/0"]) == 50


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    places=st.lists(st.integers(0, 4000), min_size=1, max_size=8),
    counts=st.lists(st.integers(0, 120), min_size=1, max_size=4),
    clock_ns=st.sampled_from([1, 1_000_000, 3_000_000_000]),
)
def test_each_line_comes_once_wherever_streams_are_cut(
    cluster: FakeKube, kube: KubeClient, places: list[int], counts: list[int], clock_ns: int
) -> None:
    cluster.reset()
    cluster.fault("cut", "/log.*sinceTime|/log.*follow", times=len(places), places=places)
    for number, count in enumerate(counts):
        script = f"i=0; while [ $i -lt {count} ]; do i=$((i+1)); echo $i; echo same; done"
        annotations = {"fake-kube/log-clock-ns": str(clock_ns)}
        kube.create(PODS, NS, pod(f"p{number}", script, annotations=annotations))
    expected = {
        f"p{number}/main/0": [text for i in range(1, count + 1) for text in (str(i), "same")]
        for number, count in enumerate(counts)
    }
    found = read(kube, len(counts))
    assert {key: found.get(key, []) for key in expected} == expected


@pytest.mark.parametrize(
    "fault",
    [
        {"action": "status", "code": 500, "times": 3},
        {"action": "status", "code": 429, "times": 3},
        {"action": "drop", "times": 3},
    ],
    ids=lambda f: f"{f['action']}{f.get('code', '')}",
)
def test_errors_of_the_server_are_survived(
    cluster: FakeKube, kube: KubeClient, fault: dict[str, Any]
) -> None:
    cluster.fault(**fault, match="/log")
    kube.create(PODS, NS, pod("p", "seq 5"))
    assert read(kube, 1) == {"p/main/0": ["1", "2", "3", "4", "5"]}


def test_a_snapshot_gives_up_in_the_end(cluster: FakeKube, kube: KubeClient) -> None:
    kube.create(PODS, NS, pod("p", "seq 5"))
    read(kube, 1)
    cluster.fault("status", "/log", code=502, times=-1)
    with pytest.raises(errors.ServerBusy, match="HTTP 502"):
        read(kube, 1, LogQuery())


def test_a_forbidden_log_is_told(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.admin("settings", {"forbidden": [["get", "pods/log"]]})
    kube.create(PODS, NS, pod("p", "seq 5"))
    with pytest.raises(errors.Forbidden, match="not allowed to get `p` of pods/log"):
        read(kube, 1)


def test_a_reader_that_is_slow_holds_the_cluster_back(cluster: FakeKube, kube: KubeClient) -> None:
    behaviour = json.dumps({"log_lines": 200_000})
    kube.create(PODS, NS, pod("p", annotations={"fake-kube/behaviour": behaviour}))
    with LogReader(kube, {OURS: None}, all_of(1), FOLLOW) as reader:
        chunks = iter(reader)
        first = next(chunks)
        assert first.lines
        held = threading.Event()
        assert not held.wait(1)  # what arrives meanwhile is bounded
        assert reader.held_bytes() < 12 * 1024 * 1024
        count = len(first.lines) + sum(len(chunk.lines) for chunk in chunks)
    assert count == 200_000


def test_a_thousand_logs_are_followed_at_once(cluster: FakeKube, kube: KubeClient) -> None:
    pods, lines = 1000, 20
    behaviour = json.dumps({"log_lines": lines, "run_s": 1})
    template = pod("p%d", annotations={"fake-kube/behaviour": behaviour})
    template["metadata"]["namespace"] = NS
    cluster.load("", "v1", "pods", template, pods)
    counts: Counter[str] = Counter()
    threads = 0
    ends: Counter[str] = Counter()
    with LogReader(kube, {OURS: None}, all_of(pods), FOLLOW) as reader:
        for chunk in reader:
            counts[chunk.source.pod] += len(chunk.lines)
            threads = max(threads, threading.active_count())
            ends[chunk.end] += bool(chunk.end)
    assert counts == {f"p{i}": lines for i in range(pods)}
    assert ends["done"] == pods
    assert threads <= 64


def test_a_job_that_retries_has_the_logs_of_all_its_pods(kube: KubeClient, tmp_path: Any) -> None:
    script = f"echo run; test -e {tmp_path}/again || {{ touch {tmp_path}/again; exit 1; }}"
    spec = pod("p", script)["spec"]
    template = {"metadata": {"labels": {"app": "x"}}, "spec": spec}
    body = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": body}
    kube.create(JOBS, NS, job)
    jobs = Selection(JOBS, NS)

    def plan(view: View) -> LogPlan:
        sources = [s for p in view(OURS) for s in started_sources(p)]
        status = view(jobs)[0].get("status") or {} if view(jobs) else {}
        return LogPlan(sources, any(c["type"] == "Complete" for c in status.get("conditions", ())))

    with LogReader(kube, {OURS: None, jobs: None}, plan, FOLLOW) as reader:
        chunks: list[PodLines] = list(reader)
    assert [bytes(line).endswith(b"run") for c in chunks for line in c.lines] == [True, True]
    assert len({chunk.source.pod for chunk in chunks}) == 2


SOURCE = LogSource(NS, "p", "u", "main", 1)


def status(restarts: int = 1, **state: object) -> Object:
    entry = {"name": "main", "restartCount": restarts, "state": state}
    return {"metadata": {"uid": "u"}, "status": {"containerStatuses": [entry]}}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (None, SourceState.GONE),
        ({**status(), "metadata": {"uid": "other"}}, SourceState.GONE),
        ({"metadata": {"uid": "u"}}, SourceState.WAITING),
        (status(waiting={}), SourceState.WAITING),
        (status(running={}), SourceState.RUNNING),
        (status(terminated={}), SourceState.ENDED),
        (status(2, running={}), SourceState.REPLACED),
        (status(3, running={}), SourceState.GONE),
        (status(unheard_of={}), SourceState.WAITING),
    ],
)
def test_what_a_pod_says_of_a_container(found: Object | None, state: SourceState) -> None:
    assert state_of(SOURCE, found) is state


def test_a_container_that_waits_for_its_restart_has_ended() -> None:
    waiting = status(waiting={"reason": "CrashLoopBackOff"})
    waiting["status"]["containerStatuses"][0]["lastState"] = {"terminated": {}}
    assert state_of(SOURCE, waiting) is SourceState.ENDED
