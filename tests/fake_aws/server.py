"""Starts the fake as a process, for tests."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

REPOSITORY = Path(__file__).parents[2]
REGION = "eu-west-1"


class FakeAws:
    """A running fake; use it as a context."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fake_aws"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the fake ended with {self._process.wait()}")
        self.url = f"http://127.0.0.1:{json.loads(line)['port']}"
        self._http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> "FakeAws":
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

    def environment(self) -> dict[str, str]:
        """Variables that lead boto3 here, and away from all files of the user."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAFAKE",
            "AWS_SECRET_ACCESS_KEY": "fake",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def admin(self, what: str, body: object = None, method: str = "POST") -> Any:
        """Asks for something beside the API: ``<service>/<name>`` calls its ``admin_<name>``."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_fake/{what}", data, method=method)
        with self._http.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    def fault(self, action: str, match: str = "", **more: object) -> None:
        """See ``faults.Fault``."""
        self.admin("faults", {"action": action, "match": match, **more})

    def no_faults(self) -> None:
        """All is well again."""
        self.admin("faults")

    @contextlib.contextmanager
    def faulty(self, action: str, match: str = "", **more: object) -> Iterator[None]:
        """A fault for the length of a context."""
        self.fault(action, match, **more)
        try:
            yield
        finally:
            self.no_faults()

    def reset(self) -> None:
        """Ends all that runs, and forgets everything."""
        self.admin("reset")

    def requests(self, *, forget: bool = False) -> list[dict[str, Any]]:
        """All that was asked, oldest first: ``{"call": "batch:SubmitJob", "params": {...}}``."""
        found: list[dict[str, Any]] = self.admin("requests", method="DELETE" if forget else "GET")
        return found

    def calls(self) -> list[str]:
        """The names of all that was asked."""
        return [request["call"] for request in self.requests()]
