"""Sessions of boto3, one for each thread, and calls of AWS's services.

A scheduler makes one ``AwsService`` for each service that it uses, and calls operations by the
names of boto3's methods::

    batch = AwsService("batch", region=opts.region, profile=opts.profile, client=given)
    batch.call("describe_jobs", jobs=ids)["jobs"]
    for job in batch.items("list_jobs", "jobSummaryList", jobQueue=queue, filters=[...]):
        ...

Nothing of boto3 is imported, and nothing is read or sent, before the first call.
"""

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchx.errors import NotInstalled
from torchx.version import __version__

from .errors import SIGN_IN, NoCredentials, translate_errors

if TYPE_CHECKING:
    import boto3

CONNECT_S = 10
ANSWER_S = 60
ATTEMPTS = 4
"""Most attempts of a call, with pauses that grow up to some seconds; AWS's own settings,
AWS_MAX_ATTEMPTS and AWS_RETRY_MODE, take precedence.
"""

_local = threading.local()


def local_session(region: str | None = None, profile: str | None = None) -> "boto3.session.Session":
    """Returns this thread's boto3 session; a new one when variables ``AWS_*`` have changed.

    Args:
        region, profile: ``None`` for those of the environment and of ``~/.aws/config``.

    Raises:
        NotInstalled: without boto3.
        AwsRefused: if there is no such profile.
    """
    key = region, profile, _settings()
    sessions: dict[Any, Any] = _local.__dict__.setdefault("sessions", {})
    if key not in sessions:
        try:
            import boto3
        except ModuleNotFoundError as err:
            msg = f"schedulers on AWS need boto3 ({err})"
            raise NotInstalled(msg, name=err.name, extra="aws") from err
        if region is None and not os.environ.get("AWS_DEFAULT_REGION"):
            region = os.environ.get("AWS_REGION")  # all SDKs but boto3 read it
        sessions.clear()
        with translate_errors("sts:session"):
            sessions[key] = boto3.session.Session(profile_name=profile, region_name=region)
    return sessions[key]


def _settings() -> tuple[tuple[str, str], ...]:
    """Returns AWS's own variables."""
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))


class AwsService:
    """A client of one AWS service. Threads share clients, as boto3 allows, but not sessions.

    Args:
        name: its name in boto3: ``batch``, ``logs``, ``sagemaker``.
        region, profile: ``None`` for the user's defaults.
        client: replaces boto3's client, for all calls.
    """

    def __init__(
        self, name: str, region: str | None = None, profile: str | None = None, client: Any = None
    ) -> None:
        self.name = name
        self._region = region
        self._profile = profile
        self._given = client
        self._lock = threading.Lock()
        self._made: dict[int | None, tuple[object, Any]] = {}

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """Returns the response of one operation; retries while AWS is busy or away.

        Args:
            operation: name of a method of boto3's client, as ``describe_jobs``.

        Raises:
            TorchXError: see ``translate_errors``.
        """
        return self._call(self.client(), operation, params)

    def call_once(self, operation: str, **params: Any) -> dict[str, Any]:
        """Like ``call``, without retries, for operations that must not happen twice."""
        return self._call(self.client(attempts=1), operation, params)

    def pages(self, operation: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Yields all pages of a response, each requested when needed."""
        with translate_errors(self._title(operation)):
            yield from self.client().get_paginator(operation).paginate(**params)

    def items(self, operation: str, key: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Yields the items of a key from all pages."""
        for page in self.pages(operation, **params):
            yield from page.get(key) or ()

    def sibling(self, name: str) -> "AwsService":
        """Another service with the same region and profile."""
        return AwsService(name, self._region, self._profile)

    def require_access(self) -> None:
        """Looks for credentials and a region, without a call of the service.

        Raises:
            NoCredentials, NoRegion: if there are none.
        """
        if self._given is not None:
            return
        with translate_errors("sts:session"):
            found = local_session(self._region, self._profile).get_credentials()
        if found is None:
            raise NoCredentials(f"no credentials for AWS: {SIGN_IN}")
        self.client(attempts=1)

    @property
    def region(self) -> str:
        """The region that calls go to."""
        return str(self.client().meta.region_name)

    def client(self, attempts: int | None = None) -> Any:
        """Returns the given client, else one of boto3; a new one when variables have changed.

        Args:
            attempts: most attempts of a call; ``None`` for the default.
        """
        if self._given is not None:
            return self._given
        settings = _settings()
        with self._lock:
            known, client = self._made.get(attempts, (None, None))
            if known != settings:
                session = local_session(self._region, self._profile)
                with translate_errors(f"{self.name}:client"):
                    client = session.client(self.name, config=_config(attempts))
                self._made[attempts] = settings, client
        return client

    def _call(self, client: Any, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        with translate_errors(self._title(operation)):
            answer: dict[str, Any] = getattr(client, operation)(**params)
        return answer

    def _title(self, operation: str) -> str:
        return f"{self.name}:{operation.title().replace('_', '')}"


def _config(attempts: int | None) -> Any:
    from botocore.config import Config

    more: dict[str, Any] = {}
    if attempts is not None:
        more["retries"] = {"mode": "standard", "total_max_attempts": attempts}
    elif not {"AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE"} & os.environ.keys():
        more["retries"] = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    return Config(
        connect_timeout=CONNECT_S,
        read_timeout=ANSWER_S,
        user_agent_extra=f"torchx/{__version__}",
        **more,
    )
