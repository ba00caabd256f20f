"""What ``torchx doctor`` finds about clusters, and about the schedulers that use them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.checkups import Configured, Finding

Find = Callable[..., dict[str, Finding]]


@pytest.fixture(scope="module")
def running() -> Iterator[FakeKube]:
    with FakeKube("--operators", "jobset,volcano,kueue") as cluster:
        yield cluster


@pytest.fixture
def cluster(running: FakeKube) -> FakeKube:
    running.reset()
    return running


@pytest.fixture
def find(cluster: FakeKube, tmp_path: Path) -> Find:
    """All findings of a scheduler by the names of the checks: ``find(name, **options)``."""
    path = cluster.kubeconfig(tmp_path / "kubeconfig")

    def findings(name: str = "kubernetes", **cfg: Any) -> dict[str, Finding]:
        scheduler = get_scheduler_factories()[name](session_name="test")
        checks = scheduler.checkups(Configured({"kubeconfig": path, **cfg}))
        return {check.name: check.check() for check in checks}

    return findings


def local_queue(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterQueue": "all"},
    }


def test_all_is_well(cluster: FakeKube, find: Find) -> None:
    cluster.load("kueue.x-k8s.io", "v1beta1", "localqueues", local_queue("team"))
    found = find()
    verdicts = {name: finding.verdict.value for name, finding in found.items()}
    assert verdicts == {
        "server": "ok",
        "clock": "ok",
        "namespace": "ok",
        "rights": "ok",
        "kinds": "ok",
        "queues": "ok",
        "registry": "neutral",
    }
    assert found["server"].text.endswith(f"at {cluster.url}")
    assert found["namespace"].options == {"namespace": "default"}
    assert found["queues"].options["queue"] == "team"
    assert "jobset" in found["kinds"].text


def test_a_server_that_is_away(cluster: FakeKube, find: Find) -> None:
    cluster.fault("status", "/version", code=503, times=-1)
    assert find()["server"].verdict.value == "broken"


def test_credentials_that_are_refused(cluster: FakeKube, find: Find) -> None:
    cluster.admin("tokens", ["another"])
    found = find()
    for name in ("server", "namespace", "rights", "kinds", "queues"):
        assert found[name].verdict.value == "broken"
        assert found[name].fix.startswith("Log in to the cluster")


def test_a_version_that_may_not_be_looked_at(cluster: FakeKube, find: Find) -> None:
    cluster.fault("status", "/version", code=403, times=-1)
    assert find()["server"].verdict.value == "neutral"


def test_a_server_that_is_old(cluster: FakeKube, find: Find) -> None:
    cluster.admin("settings", {"version": [1, 27]})
    found = find()["server"]
    assert (found.verdict.value, found.fix) == ("warning", "Upgrade the cluster")


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "text"),
    [(0, "ok", "agrees with"), (-7200, "warning", "that of the API server is 120 min behind")],
)
@pytest.mark.parametrize("code", [None, 403])
def test_a_clock_that_is_wrong(
    cluster: FakeKube, find: Find, ahead_s: float, verdict: str, text: str, code: int | None
) -> None:
    if code is not None:
        cluster.fault("status", "/version", code=code, times=-1)
    cluster.set_clock(ahead_s)
    found = find()["clock"]
    assert found.verdict.value == verdict
    assert text in found.text


def test_a_namespace_that_there_is_not(cluster: FakeKube, find: Find) -> None:
    found = find(namespace="nosuch")["namespace"]
    assert found.verdict.value == "broken"
    assert found.text == "there is no namespace `nosuch`"
    assert found.fix.startswith("kubectl create namespace nosuch")


def test_a_namespace_that_may_not_be_looked_at(cluster: FakeKube, find: Find) -> None:
    cluster.admin("settings", {"forbidden": [["get", "namespaces"]]})
    assert find()["namespace"].verdict.value == "neutral"


def test_rights_that_are_missing(cluster: FakeKube, find: Find) -> None:
    forbidden = [["create", "jobs.batch"], ["get", "pods/log"]]
    cluster.admin("settings", {"forbidden": forbidden})
    found = find()["rights"]
    assert found.verdict.value == "broken"
    assert found.text == "not allowed in namespace `default`: create jobs, get pods/log"
    assert found.fix == "kubectl auth can-i create jobs -n default"


def test_a_queue_that_is_configured_is_looked_for(cluster: FakeKube, find: Find) -> None:
    assert find(queue="any")["queues"].verdict.value == "ok"  # Volcano's are not looked at
    cluster.load("kueue.x-k8s.io", "v1beta1", "localqueues", local_queue("team"))
    assert find(queue="team")["queues"].verdict.value == "ok"
    found = find(queue="taem")["queues"]
    assert (found.verdict.value, found.fix) == ("broken", "queue = team")


def test_clusters_with_app_wrappers_and_without(find: Find, tmp_path: Path) -> None:
    assert find("kubernetes_mcad")["appwrappers"].verdict.value == "broken"
    with FakeKube("--operators", "appwrapper") as other:
        found = find("kubernetes_mcad", kubeconfig=other.kubeconfig(tmp_path / "other"))
    assert found["appwrappers"].verdict.value == "ok"
    assert found["appwrappers"].options == {"appwrapper_version": "v1beta2"}
    assert found["namespace"].verdict.value == "ok"


def test_a_context_that_there_is_not(find: Find) -> None:
    (found,) = find(context="nosuch").values()
    assert found.verdict.value == "broken"
    assert "nosuch" in found.text
