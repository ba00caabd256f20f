"""``kubernetes_mcad`` keeps the contract with both generations of AppWrappers."""

import json

import pytest

from tests.contract import test_kubernetes as of_jobs
from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.apps.labels import OURS
from torchx.schedulers._kube.calls import PODS, SERVICES, Selection
from torchx.schedulers._kube.errors import MissingKind
from torchx.schedulers.kubernetes_mcad_scheduler import KubernetesMCADScheduler, create_scheduler
from torchx.schedulers.kubernetes_mcad_scheduler._client import KINDS
from torchx.schedulers.kubernetes_mcad_scheduler._scheduler import FEATURES


@pytest.fixture(scope="module")
def cluster():
    with FakeKube("--operators", "mcad,appwrapper") as running:
        yield running


@pytest.fixture(scope="module")
def own_namespace():
    yield from of_jobs.namespace_for_tests()


class RecordingScheduler(KubernetesMCADScheduler):
    """Knows what it started, which is deleted after the test."""

    def __init__(self, session_name):
        super().__init__(session_name)
        self.started = []

    def schedule(self, dryrun_info):
        self.started.append(super().schedule(dryrun_info))
        return self.started[-1]


class OfAppWrappers:
    """What the suite needs to know of this scheduler."""

    version = "v1beta1"
    most_queries = {"describe": 2, "list": 2, "log": 2, "cancel": 3, "delete": 3}  # noqa: RUF012 - of the suite

    @pytest.fixture
    def scheduler_name(self):
        return "kubernetes_mcad"

    @pytest.fixture
    def opts(self):
        return {"appwrapper_version": self.version, "grace_s": 1}

    @pytest.fixture
    def scheduler(self, kubeconfig):
        scheduler = RecordingScheduler("test")
        scheduler.features = FEATURES[self.version]
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
    def native_objects(self, kube, namespace):
        def names():
            found = []
            for kind in (KINDS[self.version], SERVICES, PODS):
                for item in kube.list_objects(Selection(kind, namespace, OURS)).items:
                    if "deletionTimestamp" not in item["metadata"]:
                        found.append(f"{kind.plural}/{item['metadata']['name']}")
            return found

        return names

    @pytest.fixture
    def submitted(self, kube):
        def text(app_id):
            namespace, _, name = app_id.partition(":")
            return json.dumps(kube.get(KINDS[self.version], namespace, name))

        return text


@pytest.mark.thorough
class TestMCADOnAFake(OfAppWrappers, of_jobs.KubernetesOnAFake):
    """On the fake cluster, ``v1beta1``."""


@pytest.mark.thorough
class TestAppWrappersOnAFake(OfAppWrappers, of_jobs.KubernetesOnAFake):
    """On the fake cluster, ``v1beta2``."""

    version = "v1beta2"


@pytest.mark.kubernetes
class TestMCAD(OfAppWrappers, of_jobs.KubernetesOnACluster):
    """On a real cluster with MCAD; skipped where it serves the other generation."""

    @pytest.fixture(autouse=True)
    def served(self, kube, namespace):
        try:
            kube.list_objects(Selection(KINDS[self.version], namespace))
        except MissingKind:
            pytest.skip(f"the cluster serves no AppWrappers of {self.version}")


@pytest.mark.kubernetes
class TestAppWrappers(TestMCAD):
    """On a real cluster with the AppWrapper controller."""

    version = "v1beta2"
