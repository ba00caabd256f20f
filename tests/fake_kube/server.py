"""Starts the fake cluster as a process, for tests."""

import json
import time
from pathlib import Path
from typing import Any

from tests.fake_server import FakeServer


class FakeKube(FakeServer):
    """A running fake cluster.

    Args:
        arguments: of ``python -m tests.fake_kube``.
        url: scheme and host; the port is added.
    """

    def __init__(self, *arguments: str, url: str = "http://127.0.0.1") -> None:
        super().__init__("tests.fake_kube", *arguments, url=url)

    def reset(self) -> None:
        """Forgets faults, tokens, settings, requests and all objects but nodes and namespaces."""
        deadline = time.monotonic() + 20
        while self.admin("reset"):
            assert time.monotonic() < deadline, "pods of an earlier test do not end"
            time.sleep(0.01)

    def load(self, group: str, version: str, plural: str, template: object, count: int = 1) -> None:
        """Puts objects into the store, unchecked; ``%d`` in the template becomes their number."""
        body = {"group": group, "version": version, "plural": plural, "template": template}
        self.admin("objects", {**body, "count": count})

    def kubeconfig(
        self, path: Path, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None
    ) -> str:
        """Writes a kubeconfig for it and returns its path."""
        context = {"cluster": "fake", "user": "tester"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url, **(cluster or {})}}],
            "users": [{"name": "tester", "user": user or {}}],
            "contexts": [{"name": "fake", "context": context}],
        }
        path.write_text(json.dumps(document))
        return str(path)
