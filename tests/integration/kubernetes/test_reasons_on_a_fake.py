"""Reasons that no real cluster gives at will, and those that are told without one."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.runner import Runner, get_runner
from torchx.schedulers._kube.calls import LOCAL_QUEUES, PODS, Selection
from torchx.schedulers._kube.client import KubeClient
from torchx.specs import AppState, Resource, VolumeMount
from torchx.specs.overlays import JOIN

from .conftest import NS, OPTS, until
from .real_cluster import Waiter, an_app

Begin = Callable[..., Waiter]
SECRET = {
    "spec": {
        "volumes": [{"name": "v", "secret": {"secretName": "nosuch"}}],
        JOIN("containers", on="name"): [
            {"name": "r", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        ],
    }
}


@pytest.fixture
def runner(kubeconfig: str, caplog: pytest.LogCaptureFixture) -> Iterator[Runner]:
    caplog.set_level("INFO")
    with get_runner() as found:
        yield found


@pytest.fixture
def begin(runner: Runner, caplog: pytest.LogCaptureFixture) -> Iterator[Begin]:
    """Submits an app and waits for it in the background."""
    waiters: dict[str, Waiter] = {}

    def begun(script: str = "sleep 60", **more: Any) -> Waiter:
        cfg = more.pop("cfg", {})
        handle = runner.run(an_app(script, **more), "kubernetes", {**OPTS, **cfg})
        waiters[handle] = Waiter(handle, caplog)
        return waiters[handle]

    yield begun
    for handle, waiter in waiters.items():
        runner.delete(handle)
        waiter.over()


def pod_that_runs(kube: KubeClient) -> dict[str, Any]:
    def found() -> Any:
        pods = kube.list_objects(Selection(PODS, NS)).items
        return next((p for p in pods if p["status"].get("phase") == "Running"), None)

    return dict(until(found))


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ({"resource": Resource(cpu=1, gpu=99, memMB=1)}, "Unschedulable: 0/1 nodes are available"),
        ({"image": "no-such-image:1"}, "ImagePullBackOff: Back-off pulling image"),
        ({"mounts": [VolumeMount("nosuch", "/v")]}, 'persistentvolumeclaim "nosuch" not found'),
        ({"metadata": {"kubernetes": SECRET}}, "FailedMount: MountVolume.SetUp failed for volume"),
    ],
)
def test_what_keeps_a_pod_from_running_is_told(begin: Begin, app: Any, words: str) -> None:
    waiter = begin(**app)
    until(lambda: any(words in text for text in waiter.told()), 15)


def test_what_a_queue_waits_for_is_told(begin: Begin, kube: KubeClient) -> None:
    body = {"apiVersion": LOCAL_QUEUES.api_version, "kind": "LocalQueue"}
    hold = {"name": "full", "annotations": {"fake-kube/hold": "insufficient quota for cpu"}}
    kube.create(LOCAL_QUEUES, NS, {**body, "metadata": hold, "spec": {"clusterQueue": "c"}})
    waiter = begin(cfg={"queue": "full", "job_api": "job"})
    words = "Pending: insufficient quota for cpu"
    until(lambda: any(words in text for text in waiter.told()), 15)


def test_out_of_memory_is_told(begin: Begin, cluster: FakeKube, kube: KubeClient) -> None:
    waiter = begin()
    name = pod_that_runs(kube)["metadata"]["name"]
    cluster.admin("kill", {"namespace": NS, "name": name, "reason": "OOMKilled"})
    assert "r/0 killed by SIGKILL (out of memory)" in waiter.result().msg


def test_a_deadline_is_told(begin: Begin) -> None:
    waiter = begin(cfg={"active_deadline_s": 1})
    assert "deadline exceeded" in waiter.result().msg


def test_an_eviction_by_the_node_is_told(begin: Begin, cluster: FakeKube, kube: KubeClient) -> None:
    waiter = begin()
    pod = pod_that_runs(kube)
    words = {"reason": "Evicted", "message": "The node was low on resource: memory."}
    head = {"group": "", "version": "v1", "plural": "pods", "namespace": NS}
    status = {**pod["status"], "phase": "Failed", "containerStatuses": [], **words}
    cluster.admin("status", {**head, "name": pod["metadata"]["name"], "status": status})
    status_of_app = waiter.result()
    assert status_of_app.state is AppState.FAILED
    assert "Evicted: The node was low on resource: memory." in status_of_app.msg


def test_a_lost_node_is_told(begin: Begin, cluster: FakeKube, kube: KubeClient) -> None:
    waiter = begin()
    pod = pod_that_runs(kube)
    taint = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    conditions = [{**taint, "message": "Taint manager: deleting due to NoExecute taint"}]
    head = {"group": "", "version": "v1", "plural": "pods", "namespace": NS}
    status = {**pod["status"], "conditions": conditions}
    cluster.admin("status", {**head, "name": pod["metadata"]["name"], "status": status})
    words = "r/0: DeletionByTaintManager: Taint manager: deleting due to NoExecute taint"
    until(lambda: any(words in text for text in waiter.told()), 15)
