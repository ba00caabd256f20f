"""The cluster of ``TORCHX_TEST_KUBECONFIG``, and a namespace of its own for each module."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from torchx.runner import Runner, get_runner
from torchx.schedulers._kube.calls import Kind
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.connect import connect
from torchx.schedulers.ids import random_id
from torchx.specs import AppDef, AppStatus, Role

KUBECONFIG = os.environ.get("TORCHX_TEST_KUBECONFIG", "")  # tests do not see such variables
IMAGE = os.environ.get("TORCHX_TEST_KUBE_IMAGE", "torchx-test/python:3.11")
TORCH_IMAGE = os.environ.get("TORCHX_TEST_KUBE_TORCH_IMAGE", "torchx-test/torch:2.13.0")
NAMESPACES = Kind("", "v1", "namespaces", "Namespace")


class Place:
    """A namespace, and a client of the API server."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace

    def create(self, kind: Kind, name: str, **fields: Any) -> None:
        """Makes an object that is not TorchX's."""
        head = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}}
        self.kube.create(kind, self.namespace, {**head, **fields})


@contextmanager
def own_place() -> Iterator[Place]:
    """Others use the cluster at the same time."""
    if not KUBECONFIG:
        pytest.skip("set TORCHX_TEST_KUBECONFIG to the kubeconfig of a cluster for tests")
    name = f"torchx-test-{random_id()}"
    client, _ = connect(KUBECONFIG)
    client.create(
        NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    try:
        yield Place(client, name)
    finally:
        client.delete(NAMESPACES, "", name)
        client.transport.close()


def kubeconfig_for(place: Place, path: Path) -> str:
    """A kubeconfig whose only context has the namespace."""
    import yaml

    document = yaml.safe_load(Path(KUBECONFIG).read_text())
    for key in ("certificate-authority", "client-certificate", "client-key"):
        for entry in (*document["clusters"], *document["users"]):
            body = entry.get("cluster") or entry.get("user")
            if key in body and not os.path.isabs(body[key]):
                body[key] = str(Path(KUBECONFIG).parent / body[key])
    current = document["current-context"]
    (context,) = [entry for entry in document["contexts"] if entry["name"] == current]
    context["context"]["namespace"] = place.namespace
    path.write_text(json.dumps(document))
    return str(path)


def torchx(*args: str, timeout_s: float = 200) -> "subprocess.CompletedProcess[str]":
    """Runs the command line to its end."""
    program = [sys.executable, "-m", "torchx.cli.main"]
    return subprocess.run(
        [*program, *args], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def an_app(script: str, replicas: int = 1, image: str = "", **more: Any) -> AppDef:
    """One role ``r`` that runs a script of `sh`."""
    role = Role(
        name="r",
        image=image or IMAGE,
        entrypoint="sh",
        args=["-c", script],
        num_replicas=replicas,
        **more,
    )
    return AppDef("itest", [role])


class Waiter:
    """A ``Runner.wait`` in the background, and what it has told so far."""

    def __init__(self, handle: str, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self._handle = handle
        self._status: AppStatus | None = None
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        with get_runner() as runner:
            self._status = runner.wait(self._handle)

    def told(self) -> list[str]:
        """What it said of the state of this app, oldest first."""
        beginning = f"`{self._handle}` is "
        return [text.removeprefix(beginning) for text in self._caplog.messages if beginning in text]

    def over(self, timeout_s: float = 60) -> None:
        """Waits for the end of the thread, which other tests would have to share."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), self.told()

    def result(self, timeout_s: float = 60) -> AppStatus:
        """The last status."""
        self.over(timeout_s)
        assert self._status is not None, self.told()
        return self._status


def submit(runner: Runner, app: AppDef, **cfg: Any) -> str:
    """The handle of an app whose pods end soon when they are told to."""
    return runner.run(app, "kubernetes", {"grace_s": 1, **cfg})
