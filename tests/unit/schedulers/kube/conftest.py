"""A fake cluster for each module, and clients of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.connect import connect
from torchx.schedulers._kube.retry import Patience

QUICK = Patience(timeout_s=5, pauses_s=(0.01, 0.02, 0.05), longest_pause_s=1, total_s=10)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeKube]:
    with FakeKube("--operators", "jobset,volcano") as running:
        yield running


@pytest.fixture
def kube(cluster: FakeKube, tmp_path: Path) -> Iterator[KubeClient]:
    """A client; faults and objects of earlier tests are gone."""
    cluster.reset()
    client, _ = connect(cluster.kubeconfig(tmp_path / "kubeconfig"), patience=QUICK)
    yield client
    client.transport.close()
    cluster.reset()
