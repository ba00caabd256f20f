"""Types for the API server: kinds, calls, responses, and transports."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from torchx._startup.dataclass import field, light_dataclass

Object = dict[str, Any]
"""An object of the API, as JSON data."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@light_dataclass(frozen=True)
class Kind:
    """A kind of objects; ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    name: str

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Returns the path of one object, or of all in a namespace, in all if that is empty."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        parts = [quote(part, safe="") for part in (self.plural, name, subresource) if part]
        return f"{root}{inside}/{'/'.join(parts)}"


PODS = Kind("", "v1", "pods", "Pod")
NAMESPACES = Kind("", "v1", "namespaces", "Namespace")
SERVICES = Kind("", "v1", "services", "Service")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
EVENTS = Kind("", "v1", "events", "Event")
JOBS = Kind("batch", "v1", "jobs", "Job")
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
VOLCANO_JOBS = Kind("batch.volcano.sh", "v1alpha1", "jobs", "Job")
VOLCANO_COMMANDS = Kind("bus.volcano.sh", "v1alpha1", "commands", "Command")
WORKLOADS = Kind("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
LOCAL_QUEUES = Kind("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue")
APP_WRAPPERS_V1BETA1 = Kind("workload.codeflare.dev", "v1beta1", "appwrappers", "AppWrapper")
APP_WRAPPERS_V1BETA2 = Kind("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper")


@light_dataclass(frozen=True)
class Selection:
    """A selection of objects of one kind in a namespace, by labels and fields."""

    kind: Kind
    namespace: str
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        """Returns the selectors that are set."""
        given = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in given.items() if value}


@light_dataclass(frozen=True)
class Call:
    """A request, with its description for the user.

    Args:
        verb: the verb in roles: ``get``, ``list``, ``create``.
        what: the plural of the kind, with its group if any.
        idempotent: executing it twice has the same effect as once.
        query: appended to the path.
    """

    verb: str
    what: str
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    content_type: str = JSON
    namespace: str = ""
    name: str = ""
    idempotent: bool = True

    @property
    def target(self) -> str:
        """Path and query of the request."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        subject = f"`{self.name}` of {self.what}" if self.name else self.what
        place = f" in namespace `{self.namespace}`" if self.namespace else ""
        return f"{self.verb} {subject}{place}"


def call(
    verb: str,
    method: str,
    kind: Kind,
    namespace: str,
    name: str = "",
    *,
    subresource: str = "",
    query: Mapping[str, str] | None = None,
    body: object = None,
    content_type: str = JSON,
    idempotent: bool = True,
) -> Call:
    """Builds a request about objects of a kind."""
    what = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    return Call(
        verb=verb,
        what=f"{what}/{subresource}" if subresource else what,
        method=method,
        path=kind.path(namespace, "" if verb == "create" else name, subresource),
        query=tuple((query or {}).items()),
        body=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
        content_type=content_type,
        namespace=namespace,
        name=name,
        idempotent=idempotent,
    )


@light_dataclass(frozen=True)
class Answer:
    """A response: status, headers (names in lower case) and the whole body."""

    code: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """Parses the JSON body; raises ``ValueError`` if it is not JSON."""
        return json.loads(self.body)


class Transport(Protocol):
    """Sends one call to the server and returns its response, whatever the status.

    The interface for clients provided by users. No retries, except after renewing credentials.
    """

    def send(self, call: Call, timeout_s: float) -> Answer:
        """Raises ``NotSent``, ``AnswerLost`` or ``Untrusted``; never for a status."""
        ...

    def streams(self) -> "StreamTransport":
        """Returns a transport for watches and logs of the same server."""
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...


class Stream(Protocol):
    """A response whose body arrives as it is produced."""

    code: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body; raises ``AnswerLost`` if it breaks off."""
        ...


class StreamTransport(Protocol):
    """Sends calls with long responses; used from one event loop."""

    def open(self, call: Call, read_timeout_s: float | None) -> AbstractAsyncContextManager[Stream]:
        """Sends the call; raises the errors of ``Transport.send``."""
        ...

    async def send(self, call: Call, timeout_s: float) -> Answer:
        """Sends one call and returns its whole response."""
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...
