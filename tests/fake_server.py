"""A stand-in for a service, started as a process for the tests that use it."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

REPOSITORY = Path(__file__).parents[1]


class FakeServer:
    """A running stand-in; use it as a context.

    Args:
        module: package that is run; it prints ``{"port": ...}``, and ends with its input.
        arguments: of the command line.
        url: scheme and host; the port is added.
    """

    def __init__(self, module: str, *arguments: str, url: str = "http://127.0.0.1") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"`{module}` ended with {self._process.wait()}")
        self.port = int(json.loads(line)["port"])
        self.url = f"{url}:{self.port}"
        self._http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> "Self":
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
        """Asks for something beside the API of the service."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_fake/{what}", data, method=method)
        with self._http.open(request, timeout=120) as answer:
            return json.loads(answer.read())

    def fault(self, action: str, match: str = "", **more: object) -> None:
        """See ``faults.Fault`` of the package."""
        self.admin("faults", {"action": action, "match": match, **more})

    def no_faults(self) -> None:
        """All is well again."""
        self.admin("faults")

    def set_clock(self, ahead_s: float) -> None:
        """Has it tell another time than ours, until it is reset."""
        self.admin("clock", {"ahead_s": ahead_s})

    def requests(self, *, forget: bool = False) -> list[dict[str, Any]]:
        """All that was asked, oldest first."""
        found: list[dict[str, Any]] = self.admin("requests", method="DELETE" if forget else "GET")
        return found
