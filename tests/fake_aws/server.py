"""Starts the fake as a process, for tests."""

import contextlib
from collections.abc import Iterator

from tests.fake_server import FakeServer

REGION = "eu-west-1"


class FakeAws(FakeServer):
    """A running fake. Beside its API, ``<service>/<name>`` calls that service's ``admin_<name>``;
    requests are noted as ``{"call": "batch:SubmitJob", "params": {...}}``."""

    def __init__(self) -> None:
        super().__init__("tests.fake_aws")

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

    def calls(self) -> list[str]:
        """The names of all that was asked."""
        return [request["call"] for request in self.requests()]
