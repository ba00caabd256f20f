"""A stand-in for a Kubernetes cluster, as a process of its own beside the workload."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fake_kube.server import FakeKube


class Cluster(FakeKube):
    """The API server of the tests, with what workloads put into it and ask of it."""

    def pods(self) -> list[str]:
        """Names of all pods."""
        with urllib.request.urlopen(f"{self.url}/api/v1/namespaces/default/pods") as answer:
            return [pod["metadata"]["name"] for pod in json.load(answer)["items"]]

    def asked(self) -> list[str]:
        """All that was asked since the last call, as method and target."""
        return [
            f"{request['method']} {request['target']}" for request in self.requests(forget=True)
        ]

    def fill(self, plural: str, template: object, count: int, group: str = "") -> None:
        """Puts objects of a template into the store, whose ``%d`` becomes their number."""
        self.load(group, "v1", plural, template, count)

    def write_status(self, plural: str, name: str, status: object, group: str = "") -> None:
        """Says how an object is."""
        head = {"group": group, "version": "v1", "plural": plural, "namespace": "default"}
        self.admin("status", {**head, "name": name, "status": status})


@contextmanager
def cluster(*arguments: str) -> Iterator[Cluster]:
    """A running one, of which ``KUBECONFIG`` tells."""
    with Cluster(*arguments) as found:
        path = Path(os.environ["HOME"]) / "kubeconfig"
        os.environ["KUBECONFIG"] = found.kubeconfig(path)
        yield found
