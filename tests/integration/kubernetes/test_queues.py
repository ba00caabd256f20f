"""Queues of Kueue on a real cluster that has them, and a ClusterQueue."""

from collections.abc import Iterator

import pytest

from tests.integration.kubernetes.real_cluster import (
    Place,
    an_app,
    kubeconfig_for,
    own_place,
    submit,
)
from torchx.runner import Runner, get_runner
from torchx.schedulers._kube.calls import (
    APP_WRAPPERS_V1BETA2,
    JOB_SETS,
    LOCAL_QUEUES,
    WORKLOADS,
    Kind,
    Selection,
)
from torchx.schedulers._kube.errors import MissingKind
from torchx.specs import AppState, Resource

from .conftest import until

pytestmark = pytest.mark.kubernetes
CLUSTER_QUEUES = Kind("kueue.x-k8s.io", "v1beta1", "clusterqueues", "ClusterQueue")
APIS = ["job", "jobset"]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A namespace with the LocalQueue ``q``."""
    with own_place() as place:
        if "kueue.x-k8s.io" not in place.kube.groups():
            pytest.skip("the cluster has no Kueue")
        queues = place.kube.list_objects(Selection(CLUSTER_QUEUES, "")).items
        if not queues:
            pytest.skip("the cluster has no ClusterQueue")
        spec = {"clusterQueue": queues[0]["metadata"]["name"]}
        place.create(LOCAL_QUEUES, "q", spec=spec)
        yield place


@pytest.fixture
def runner(place: Place, tmp_path, monkeypatch) -> Iterator[Runner]:
    monkeypatch.setenv("KUBECONFIG", kubeconfig_for(place, tmp_path / "kubeconfig"))
    with get_runner() as made:
        yield made


def need(place: Place, api: str) -> None:
    if api == "jobset" and JOB_SETS.group not in place.kube.groups():
        pytest.skip("the cluster has no JobSet")


def workloads(place: Place) -> list:
    return place.kube.list_objects(Selection(WORKLOADS, place.namespace)).items


@pytest.mark.parametrize("api", APIS)
def test_an_app_in_a_queue_runs_when_it_is_admitted(place, runner, api):
    need(place, api)
    app = an_app("true", 2, resource=Resource(cpu=1, gpu=0, memMB=64))
    handle = submit(runner, app, job_api=api, queue="q")
    assert runner.wait(handle).state is AppState.SUCCEEDED
    runner.delete(handle)
    until(lambda: not workloads(place))


@pytest.mark.parametrize("api", APIS)
def test_an_app_that_does_not_fit_says_why_and_can_be_cancelled(place, runner, api):
    need(place, api)
    app = an_app("true", 2, resource=Resource(cpu=500, gpu=0, memMB=64))
    handle = submit(runner, app, job_api=api, queue="q")
    until(lambda: "quota" in runner.status(handle).msg)
    assert runner.status(handle).state is AppState.PENDING
    runner.cancel(handle)
    assert runner.wait(handle).state is AppState.CANCELLED
    assert [found["spec"]["active"] for found in workloads(place)] == [False]
    runner.delete(handle)
    until(lambda: not workloads(place))


@pytest.mark.parametrize("api", APIS)
def test_an_app_that_was_admitted_stays_cancelled(place, runner, api):
    need(place, api)
    app = an_app("sleep 600", 2, resource=Resource(cpu=1, gpu=0, memMB=64))
    handle = submit(runner, app, job_api=api, queue="q")
    until(lambda: runner.status(handle).state is AppState.RUNNING)
    runner.cancel(handle)
    assert runner.wait(handle).state is AppState.CANCELLED
    assert runner.status(handle).state is AppState.CANCELLED
    runner.delete(handle)
    until(lambda: not workloads(place))


def test_a_queue_chooses_volcano_where_the_cluster_has_it(place, runner):
    groups = place.kube.groups()
    info = runner.dryrun(an_app("true"), "kubernetes", {"queue": "q", "validate_spec": False})
    assert info.request.api == ("volcano" if "batch.volcano.sh" in groups else "job")


def test_an_app_wrapper_waits_in_a_queue(place, runner):
    try:
        place.kube.list_objects(Selection(APP_WRAPPERS_V1BETA2, place.namespace))
    except MissingKind:
        pytest.skip("the cluster serves no AppWrappers of v1beta2")
    cfg = {"appwrapper_version": "v1beta2", "queue": "q", "grace_s": 1}
    fits = an_app("true", 2, resource=Resource(cpu=1, gpu=0, memMB=64))
    handle = runner.run(fits, "kubernetes_mcad", cfg)
    assert runner.wait(handle).state is AppState.SUCCEEDED
    runner.delete(handle)
    too_large = an_app("true", 2, resource=Resource(cpu=500, gpu=0, memMB=64))
    handle = runner.run(too_large, "kubernetes_mcad", cfg)
    until(lambda: "quota" in runner.status(handle).msg)
    assert runner.status(handle).state is AppState.PENDING
    runner.cancel(handle)
    assert runner.wait(handle).state is AppState.CANCELLED
    runner.delete(handle)
    until(lambda: not workloads(place))
