"""A stand-in for a Kubernetes cluster, as a process of its own beside the workload."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


class Cluster:
    """The API server of the tests, and what is asked of it beside the API."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def admin(self, what: str, body: object = None, method: str = "POST") -> Any:
        """See ``tests/fake_kube/cluster.py``."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_fake/{what}", data, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())

    def pods(self) -> list[str]:
        """Names of all pods."""
        with urllib.request.urlopen(f"{self.url}/api/v1/namespaces/default/pods") as answer:
            return [pod["metadata"]["name"] for pod in json.load(answer)["items"]]

    def requests(self) -> list[str]:
        """All that was asked since the last call, as method and target."""
        return [
            f"{request['method']} {request['target']}"
            for request in self.admin("requests", method="DELETE")
        ]

    def load(self, plural: str, template: object, count: int, group: str = "") -> None:
        """Puts objects of a template into the store, whose ``%d`` becomes their number."""
        head = {"group": group, "version": "v1", "plural": plural}
        self.admin("objects", {**head, "template": template, "count": count})

    def write_status(self, plural: str, name: str, status: object, group: str = "") -> None:
        """Says how an object is."""
        head = {"group": group, "version": "v1", "plural": plural, "namespace": "default"}
        self.admin("status", {**head, "name": name, "status": status})


@contextmanager
def cluster(*arguments: str) -> Iterator[Cluster]:
    """A running one, of which ``KUBECONFIG`` tells."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fake_kube", *arguments],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        found = Cluster(json.loads(process.stdout.readline())["port"])
        document = {
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": found.url}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake"}}],
        }
        path = Path(os.environ["HOME"]) / "kubeconfig"
        path.write_text(json.dumps(document))
        os.environ["KUBECONFIG"] = str(path)
        yield found
    finally:
        process.stdin.close()
        process.wait()
