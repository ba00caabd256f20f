"""``wait`` says why pods do not run, in the cluster's own words, and how they failed."""

import pytest

from torchx.runner import get_runner
from torchx.schedulers._kube.calls import PODS, Kind, Selection, call
from torchx.specs import AppState, Resource, VolumeMount
from torchx.specs.overlays import JOIN

from .conftest import until
from .real_cluster import Waiter, an_app, kubeconfig_for, own_place, submit

TOLD_WITHIN_S = 15
QUOTAS = Kind("", "v1", "resourcequotas", "ResourceQuota")
ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount")
MOUNTS_A_SECRET = {
    "spec": {
        "volumes": [{"name": "v", "secret": {"secretName": "nosuch"}}],
        JOIN("containers", on="name"): [
            {"name": "r", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        ],
    }
}

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def place():
    with own_place() as found:
        # the first pods need the account that the cluster makes in a new namespace
        until(lambda: found.kube.list_objects(Selection(ACCOUNTS, found.namespace)).items)
        yield found


@pytest.fixture
def runner(place, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setenv("KUBECONFIG", kubeconfig_for(place, tmp_path / "kubeconfig"))
    with get_runner() as found:
        yield found


@pytest.fixture
def begin(runner, caplog):
    """Submits an app and waits for it in the background; the waiter."""
    waiters = {}

    def begun(app, **cfg):
        handle = submit(runner, app, **cfg)
        waiter = waiters[handle] = Waiter(handle, caplog)
        waiter.app_id = handle.rpartition("/")[2]
        return waiter

    yield begun
    for handle, waiter in waiters.items():
        runner.delete(handle)
        waiter.over()


def told(waiter, words):
    """What it told with these words, in time."""

    def found():
        return next((text for text in waiter.told() if words in text), None)

    try:
        return until(found, TOLD_WITHIN_S)
    except AssertionError:
        pytest.fail(f"`{words}` was not told within {TOLD_WITHIN_S} s: {waiter.told()}")


@pytest.mark.parametrize(
    ("app", "cfg", "words"),
    [
        ({"resource": Resource(cpu=900, gpu=0, memMB=10)}, {}, "1 Insufficient cpu"),
        (
            {"resource": Resource(cpu=1, gpu=3, memMB=100)},
            {"gpu_resource": "amd.com/gpu"},
            "Unschedulable: 0/1 nodes are available: 1 Insufficient amd.com/gpu",
        ),
        ({}, {"node_selector": {"pool": "nosuch"}}, "didn't match Pod's node affinity/selector"),
        ({"image": "torchx-test/nosuch:1"}, {}, "ErrImagePull: "),
        ({"image": "localhost:1/nosuch:1"}, {}, "ImagePullBackOff: "),
        ({"image": "Not An Image"}, {}, "InvalidImageName: "),
        (
            {"mounts": [VolumeMount("nosuch", "/v")]},
            {},
            'Unschedulable: 0/1 nodes are available: persistentvolumeclaim "nosuch" not',
        ),
        (
            {"metadata": {"kubernetes": MOUNTS_A_SECRET}},
            {},
            'FailedMount: MountVolume.SetUp failed for volume "v" : secret "nosuch" not',
        ),
        ({}, {"env_from_secret": ["nosuch"]}, 'CreateContainerConfigError: secret "nosuch" not'),
        ({}, {"service_account": "nosuch"}, 'serviceaccount "nosuch" not found'),
        ({}, {"priority_class": "nosuch"}, "no PriorityClass with name nosuch was found"),
    ],
)
def test_what_keeps_a_pod_from_running_is_told(begin, app, cfg, words):
    told(begin(an_app("true", **app), **cfg), words)


def test_replicas_over_the_quota_are_told(place, begin):
    place.create(QUOTAS, "two-pods", spec={"hard": {"pods": "2"}})
    try:
        waiter = begin(an_app("sleep 60", replicas=5))
        line = told(waiter, "RUNNING: 3 of 5 replicas wait: FailedCreate: ")
    finally:
        place.kube.delete(QUOTAS, place.namespace, "two-pods")
    assert "exceeded quota: two-pods" in line


def test_a_queue_tells_what_it_waits_for(place, begin):
    if "kueue.x-k8s.io" not in place.kube.groups():
        pytest.skip("the cluster has no Kueue")
    waiter = begin(an_app("true"), job_api="job", queue="nosuch")
    told(waiter, "Inadmissible: LocalQueue nosuch doesn't exist")


def failed(waiter):
    """The last status and why the only replica failed."""
    status = waiter.result()
    assert status.state is AppState.FAILED
    return status


def test_out_of_memory_is_told(begin):
    resource = Resource(cpu=1, gpu=0, memMB=40)
    waiter = begin(an_app("exec python3 -c 'x = bytearray(10**9)'", resource=resource))
    assert "r/0 killed by SIGKILL (out of memory)" in failed(waiter).msg


def test_a_deadline_is_told(begin):
    waiter = begin(an_app("sleep 100"), active_deadline_s=2)
    assert "deadline exceeded" in failed(waiter).msg


def test_a_program_that_is_missing_is_told(begin):
    app = an_app("")
    app.roles[0].entrypoint = "/no/such/program"
    status = failed(begin(app))
    assert "StartError: " in status.msg
    assert "no such file or directory" in status.msg


def pod_of(place, waiter):
    name = waiter.app_id.partition(":")[2]
    labels = f"app.kubernetes.io/instance={name}"

    def running():
        pods = place.kube.list_objects(Selection(PODS, place.namespace, labels)).items
        return next((p for p in pods if p["status"].get("phase") == "Running"), None)

    return until(running)


def test_a_pod_over_its_disk_space_is_told(place, begin):
    limits = {"limits": {"ephemeral-storage": "2Mi"}}
    overlay = {"spec": {JOIN("containers", on="name"): [{"name": "r", "resources": limits}]}}
    fills = "dd if=/dev/zero of=/tmp/x bs=1M count=20 2>/dev/null; sleep 100"
    waiter = begin(an_app(fills, metadata={"kubernetes": overlay}))
    assert "Evicted: " in failed(waiter).msg


def test_an_evicted_pod_is_replaced_and_not_a_failure(place, begin):
    waiter = begin(an_app("trap 'exit 1' TERM; sleep 4 & wait; echo done"))
    pod = pod_of(place, waiter)["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    evict = call("evict", "POST", PODS, place.namespace, pod, subresource="eviction", body=body)
    assert place.kube.transport.send(evict, 10).code == 201
    assert waiter.result().state is AppState.SUCCEEDED
    assert any("EvictionByEvictionAPI: Eviction API: evicting" in text for text in waiter.told())
