"""``kubernetes`` keeps the contract of schedulers: on a fake API server, and on a real cluster."""

import contextlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.contract.trials import TRIALS
from tests.fake_kube.server import FakeKube
from tests.kube_relay import KubeRelay
from torchx.schedulers._kube.apps.labels import OURS
from torchx.schedulers._kube.apps.snapshots import pod_state
from torchx.schedulers._kube.calls import CONFIG_MAPS, JOBS, PODS, SERVICES, Kind, Selection
from torchx.schedulers._kube.connect import connect
from torchx.schedulers.ids import random_id
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler, create_scheduler
from torchx.specs import AppState
from torchx.testing._contract.states import KILLS_ITSELF
from torchx.testing.scheduler_suite import SchedulerContract

KUBECONFIG = os.environ.get("TORCHX_TEST_KUBECONFIG")  # tests do not see such variables
IMAGE = os.environ.get("TORCHX_TEST_KUBE_IMAGE", "torchx-test/python:3.11")
NAMESPACES = Kind("", "v1", "namespaces", "Namespace")
NOT_QUERIES = re.compile(r"/log\?|[?&]watch=1|/apis$")
"""Streams: one for each container, and those that tell of changes; and the question which kinds of
objects there are, which a process asks once."""


class KubernetesContract(SchedulerContract):
    """What the suite needs to know of this scheduler."""

    requires_resource = False
    trials = TRIALS
    # Jobs and Pods are two lists; each object is patched or deleted by itself
    most_queries = {"describe": 2, "list": 2, "log": 2, "cancel": 3, "delete": 4}  # noqa: RUF012 - of the suite
    native_states = (
        ("Pending", AppState.PENDING),
        ("Running", AppState.RUNNING),
        ("Succeeded", AppState.SUCCEEDED),
        ("Failed", AppState.FAILED),
        ("Dreaming", AppState.UNKNOWN),
    )

    def state_of(self, native):
        return pod_state({"spec": {"containers": [{}]}, "status": {"phase": native}})

    @pytest.fixture
    def scheduler_name(self):
        return "kubernetes"

    @pytest.fixture
    def kubeconfig(self):
        raise NotImplementedError

    @pytest.fixture
    def namespace(self):
        return "default"

    @pytest.fixture
    def scheduler(self, kubeconfig):
        scheduler = RecordingScheduler("test")
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self, kubeconfig):
        scheduler = create_scheduler("other")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def kube(self, kubeconfig):
        client, _ = connect(kubeconfig)
        yield client
        client.transport.close()

    @pytest.fixture
    def backend_missing(self, scheduler, monkeypatch):
        @contextlib.contextmanager
        def missing():
            scheduler.close()  # a client that is there needs no package any more
            # those alone that need the package: another copy of the errors would not be caught
            hidden = [
                name
                for name, module in sys.modules.items()
                if name.startswith("torchx.schedulers._kube.")
                and ({"httpcore", "HttpTransport"} & {*vars(module)})
            ]
            with monkeypatch.context() as patch:
                for name in hidden:
                    patch.delitem(sys.modules, name)
                patch.setitem(sys.modules, "httpcore", None)
                yield

        return missing

    @pytest.fixture
    def native_objects(self, kube, namespace):
        def names():
            found = []
            for kind in (JOBS, SERVICES, CONFIG_MAPS, PODS):
                for item in kube.list_objects(Selection(kind, namespace, OURS)).items:
                    if "deletionTimestamp" not in item["metadata"]:
                        found.append(f"{kind.plural}/{item['metadata']['name']}")
            return found

        return names

    @pytest.fixture
    def submitted(self, kube):
        def text(app_id):
            namespace, _, name = app_id.partition(":")
            labels = f"{OURS},app.kubernetes.io/instance={name}"
            return json.dumps(kube.list_objects(Selection(JOBS, namespace, labels)).items)

        return text


class RecordingScheduler(KubernetesScheduler):
    """Knows what it started, which is deleted after the test."""

    def __init__(self, session_name):
        super().__init__(session_name)
        self.started = []

    def schedule(self, dryrun_info):
        self.started.append(super().schedule(dryrun_info))
        return self.started[-1]


@pytest.fixture(scope="module")
def cluster():
    with FakeKube() as running:
        yield running


class KubernetesOnAFake(KubernetesContract):
    """On an API server that keeps objects and runs commands as processes of this machine."""

    timeout_s = 60
    no_commands = "the fake API server opens no websockets"

    @pytest.fixture
    def image(self):
        return "any"

    @pytest.fixture
    def host_dir(self):
        pytest.skip("the fake node mounts nothing")

    @pytest.fixture
    def opts(self):
        return {"grace_s": 3}  # of 30 by default, which a test of it would take

    @pytest.fixture
    def kubeconfig(self, cluster, tmp_path, monkeypatch):
        cluster.reset()
        path = cluster.kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", path)
        yield path
        cluster.no_faults()

    @pytest.fixture
    def backend_away(self, cluster):
        return lambda: faulty(cluster, action="drop", times=-1)

    @pytest.fixture
    def refuse_submission(self, cluster):
        def refuse(after):
            match = r"^(POST|PATCH) (?!.*dryRun)"
            return faulty(cluster, "status", match, code=403, skip=after, times=1)

        return refuse

    @pytest.fixture
    def refuse_end(self, cluster):
        return lambda: faulty(cluster, "status", "^(PATCH|DELETE) ", code=403, times=-1)

    @pytest.fixture
    def queries(self, cluster):
        return lambda: sum(not NOT_QUERIES.search(r["target"]) for r in cluster.requests())


class TestKubernetesOnAFake(KubernetesOnAFake):
    """With a Job for each role."""


@contextlib.contextmanager
def faulty(cluster, action, match="", **more):
    cluster.fault(action, match, **more)
    try:
        yield
    finally:
        cluster.no_faults()


# -- the real thing ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_namespace():
    yield from namespace_for_tests()


def namespace_for_tests():
    """A namespace of its own, as others use the cluster at the same time."""
    if not KUBECONFIG:
        pytest.skip("set TORCHX_TEST_KUBECONFIG to the kubeconfig of a cluster for tests")
    name = f"torchx-test-{random_id()}"
    client, _ = connect(KUBECONFIG)
    client.create(NAMESPACES, "", {"metadata": {"name": name}})
    yield name
    client.delete(NAMESPACES, "", name)
    client.transport.close()


class KubernetesOnACluster(KubernetesContract):
    """On the cluster of ``TORCHX_TEST_KUBECONFIG``, whose node has the image."""

    no_commands = "what counts the calls passes no upgraded connections on, see test_inside.py"
    timeout_s = 100
    many_replicas = 12  # as many as a small node starts soon; more are tested on the fake
    # a list asks for each kind of objects that the cluster has, three at most, and for the pods
    most_queries = {**KubernetesContract.most_queries, "list": 4}  # noqa: RUF012 - of the suite

    @pytest.fixture
    def image(self):
        return IMAGE

    @pytest.fixture
    def opts(self):
        return {"grace_s": 1}  # `sh` as the first process of a container ignores SIGTERM

    @pytest.fixture
    def namespace(self, own_namespace):
        return own_namespace

    @pytest.fixture
    def relay(self, tmp_path, namespace):
        """What the scheduler talks to: it passes all on, or is away."""
        with KubeRelay(Path(KUBECONFIG), tmp_path / "kubeconfig", namespace) as relay:
            yield relay

    @pytest.fixture
    def kubeconfig(self, relay, monkeypatch):
        monkeypatch.setenv("KUBECONFIG", relay.kubeconfig)
        return KUBECONFIG

    @pytest.fixture
    def backend_away(self, relay):
        return relay.away

    @pytest.fixture
    def refuse_submission(self, relay):
        return lambda after: relay.refusing(r"^(POST|PATCH) (?!.*dryRun)", skip=after, times=1)

    @pytest.fixture
    def refuse_end(self, relay):
        return lambda: relay.refusing("^(PATCH|DELETE) ")

    @pytest.fixture
    def queries(self, relay):
        return lambda: sum(not NOT_QUERIES.search(call) for call in relay.calls)

    def test_a_signal_is_a_negative_exit_code(self, jobs):
        # the first process of a container cannot kill itself: another one is the first here
        pod = {"spec": {"shareProcessNamespace": True}}
        app_id = jobs.run(jobs.python(KILLS_ITSELF, metadata={"kubernetes": pod}))
        (failed,) = jobs.failed(app_id)
        assert failed.exit_code == -9
        assert "worker/0 killed by SIGKILL" in jobs.describe(app_id).msg


@pytest.mark.kubernetes
class TestKubernetes(KubernetesOnACluster):
    """With a Job for each role."""
