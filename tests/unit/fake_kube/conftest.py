"""A fake cluster with all operators, for each module."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.calls import JOBS, PODS, Kind, Object, Selection, call
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.connect import connect

NS = "default"


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeKube]:
    with FakeKube("--operators", "jobset,volcano,kueue,appwrapper,mcad") as running:
        yield running


@pytest.fixture
def kube(cluster: FakeKube, tmp_path: Path) -> Iterator[KubeClient]:
    cluster.reset()
    client, _ = connect(cluster.kubeconfig(tmp_path / "kubeconfig"))
    yield client
    client.transport.close()
    cluster.reset()


def container(script: str, name: str = "main", **more: Any) -> Object:
    return {"name": name, "image": "i", "command": ["sh", "-c", script], **more}


def pod_spec(script: str, **more: Any) -> Object:
    return {"restartPolicy": "Never", "containers": [container(script)], **more}


def job(name: str, script: str, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(script)}
    indexed = {"completionMode": "Indexed", "completions": 1, "backoffLimit": 0}
    spec = {**indexed, "template": template, **spec}
    spec.setdefault("parallelism", spec["completions"])
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def reached(find: Callable[[], Any], timeout_s: float = 20) -> Any:
    """What is found, as soon as it is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := find()):
        assert time.monotonic() < deadline, "it did not get there"
        time.sleep(0.01)
    return found


def condition(kube: KubeClient, kind: Kind, name: str, *types: str) -> Object:
    """The first condition of these types that is true, waited for."""

    def find() -> Object | None:
        status = kube.get(kind, NS, name).get("status") or {}
        there = status.get("conditions") or ()
        return next((c for c in there if c["type"] in types and c["status"] == "True"), None)

    found: Object = reached(find)
    return found


def ended(kube: KubeClient, name: str) -> Object:
    """The status of a Job that has ended, with ``reason`` of its last condition."""
    found = condition(kube, JOBS, name, "Complete", "Failed")
    return {**kube.get(JOBS, NS, name)["status"], "reason": found["reason"], "end": found["type"]}


def pods(kube: KubeClient, labels: str = "") -> list[Object]:
    return kube.list_objects(Selection(PODS, NS, labels)).items


def log(kube: KubeClient, pod: str, **query: str) -> list[str]:
    request = call("get", "GET", PODS, NS, pod, subresource="log", query=query)
    return kube.transport.send(request, 10).body.decode().splitlines()
