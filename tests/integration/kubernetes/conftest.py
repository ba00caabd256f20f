"""A fake cluster for each module, and apps on it that note what they did."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.apps.labels import OURS
from torchx.schedulers._kube.calls import CONFIG_MAPS, JOBS, PODS, SERVICES, Selection
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.connect import connect
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler, create_scheduler
from torchx.specs import AppDef, AppStatus, Role, is_terminal

NS = "default"
OPTS = {"validate_spec": False, "grace_s": 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeKube]:
    with FakeKube("--operators", "kueue") as running:
        yield running


@pytest.fixture
def kubeconfig(cluster: FakeKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """That of the user; objects and faults of earlier tests are gone."""
    cluster.reset()
    path = cluster.kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", path)
    return path


@pytest.fixture
def scheduler(kubeconfig: str) -> Iterator[KubernetesScheduler]:
    made = create_scheduler("test")
    yield made
    made.close()


@pytest.fixture
def kube(kubeconfig: str) -> Iterator[KubeClient]:
    client, _ = connect(kubeconfig)
    yield client
    client.transport.close()


def until(condition: Callable[[], Any], timeout_s: float = 60) -> Any:
    """What the condition gives as soon as that is true."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return value


def ended(scheduler: KubernetesScheduler, app_id: str, timeout_s: float = 60) -> AppStatus:
    """The last status of an app."""

    def state() -> Any:
        found = scheduler.describe(app_id)
        assert found is not None, f"`{app_id}` is gone"
        if is_terminal(found.state):
            return found
        scheduler.wait_for_change(app_id, 1)
        return None

    return until(state, timeout_s)


class Notes:
    """A file to which each replica of an app appends a line when it runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def app(self, *replicas: int, name: str = "app") -> AppDef:
        """An app with a role for each number of replicas."""
        roles = [
            Role(
                name=f"r{i}",
                image="any",
                entrypoint="sh",
                args=["-c", f"echo r{i}/$JOB_COMPLETION_INDEX >> {self._path}"],
                num_replicas=count,
            )
            for i, count in enumerate(replicas)
        ]
        return AppDef(name, roles)

    def forget(self) -> None:
        """Begins anew."""
        self._path.unlink(missing_ok=True)

    def ran(self) -> Counter[str]:
        """How often each replica ran."""
        return Counter(self._path.read_text().split() if self._path.exists() else ())


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


def left(kube: KubeClient) -> list[str]:
    """All objects of ours that are not being deleted."""
    return [
        f"{kind.plural}/{item['metadata']['name']}"
        for kind in (JOBS, SERVICES, CONFIG_MAPS, PODS)
        for item in kube.list_objects(Selection(kind, NS, OURS)).items
        if "deletionTimestamp" not in item["metadata"]
    ]
