"""``kubernetes`` keeps the contract with each kind of objects: see ``test_kubernetes`` for Jobs."""

import json

import pytest

from tests.contract import test_kubernetes as of_jobs
from tests.fake_kube.server import FakeKube
from torchx.errors import UnsupportedRequest
from torchx.schedulers._kube.apps.labels import OURS
from torchx.schedulers._kube.calls import SERVICES, Selection
from torchx.schedulers.kubernetes_scheduler._kinds import KINDS
from torchx.specs import AppDef


@pytest.fixture(scope="module")
def cluster():
    with FakeKube("--operators", "jobset,volcano") as running:
        yield running


@pytest.fixture(scope="module")
def own_namespace():
    yield from of_jobs.namespace_for_tests()


class OfOneKind:
    """What the suite needs to know of a kind of objects."""

    api = ""

    @pytest.fixture
    def opts(self):
        return {"job_api": self.api, "grace_s": 1}

    @pytest.fixture
    def scheduler(self, kubeconfig):
        scheduler = of_jobs.RecordingScheduler("test")
        scheduler.features = KINDS[self.api].features
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()

    @pytest.fixture
    def native_objects(self, kube, namespace):
        kind = KINDS[self.api].kind

        def names():
            found = []
            for one in (kind, SERVICES, of_jobs.PODS):
                for item in kube.list_objects(Selection(one, namespace, OURS)).items:
                    if "deletionTimestamp" not in item["metadata"]:
                        found.append(f"{one.plural}/{item['metadata']['name']}")
            return found

        return names

    @pytest.fixture
    def submitted(self, kube):
        kind = KINDS[self.api].kind

        def text(app_id):
            namespace, _, name = app_id.partition(":")
            return json.dumps(kube.get(kind, namespace, name))

        return text


class OfJobSets(OfOneKind):
    """The cluster ends and restarts all of a JobSet."""

    api = "jobset"
    # three kinds of objects in a list of apps
    most_queries = {"describe": 2, "list": 4, "log": 2, "cancel": 3, "delete": 3}  # noqa: RUF012 - of the suite

    def test_the_first_failure_is_the_one_that_ended_first(self, jobs):
        app = AppDef("app", [jobs.role("sh", name=name) for name in "ab"])
        with pytest.raises(UnsupportedRequest, match="job_api=job"):
            jobs.start(app, on_failure="wait")

    def test_the_min_of_replicas_does_not_keep_a_job_from_running(self, jobs):
        # it would be left out in silence: a JobSet is over as soon as one replica has failed
        with pytest.raises(UnsupportedRequest, match=r"min_replicas.*job_api=job"):
            jobs.start(jobs.sh("true", num_replicas=2, min_replicas=1))


class OfVolcano(OfOneKind):
    """The cluster ends and restarts all of a Job."""

    api = "volcano"
    # it is cancelled by a mark and a command
    most_queries = {"describe": 2, "list": 4, "log": 2, "cancel": 4, "delete": 3}  # noqa: RUF012 - of the suite


@pytest.mark.thorough
class TestJobSetsOnAFake(OfJobSets, of_jobs.KubernetesOnAFake):
    """On the fake cluster."""


@pytest.mark.thorough
class TestVolcanoOnAFake(OfVolcano, of_jobs.KubernetesOnAFake):
    """On the fake cluster."""


@pytest.mark.kubernetes
class TestJobSets(OfJobSets, of_jobs.KubernetesOnACluster):
    """On a real cluster with JobSet."""


@pytest.mark.kubernetes
class TestVolcano(OfVolcano, of_jobs.KubernetesOnACluster):
    """On a real cluster with Volcano."""
