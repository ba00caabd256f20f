"""Starts the fake cluster as a process, for tests."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

REPOSITORY = Path(__file__).parents[2]


class FakeKube:
    """A running fake cluster; use it as a context.

    Args:
        arguments: of ``python -m tests.fake_kube``.
        url: scheme and host; the port is added.
    """

    def __init__(self, *arguments: str, url: str = "http://127.0.0.1") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fake_kube", *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the fake cluster ended with {self._process.wait()}")
        self.port = int(json.loads(line)["port"])
        self.url = f"{url}:{self.port}"
        self._http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> "FakeKube":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it and all that it runs."""
        process = self._process
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()

    def admin(self, what: str, body: object = None, method: str = "POST") -> Any:
        """Asks for something beside the API."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_fake/{what}", data, method=method)
        with self._http.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    def fault(self, action: str, match: str = "", **more: object) -> None:
        """See ``faults.Fault``."""
        self.admin("faults", {"action": action, "match": match, **more})

    def no_faults(self) -> None:
        self.admin("faults")

    def reset(self) -> None:
        """Forgets faults, tokens, settings, requests and all objects but nodes and namespaces."""
        deadline = time.monotonic() + 20
        while self.admin("reset"):
            assert time.monotonic() < deadline, "pods of an earlier test do not end"
            time.sleep(0.01)

    def requests(self, *, forget: bool = False) -> list[dict[str, Any]]:
        """All that was asked, oldest first."""
        found: list[dict[str, Any]] = self.admin("requests", method="DELETE" if forget else "GET")
        return found

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
