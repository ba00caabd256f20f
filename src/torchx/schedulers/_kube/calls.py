"""What is said to an API server: kinds, calls, answers, and who carries them."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from torchx._startup.dataclass import field, light_dataclass

Object = dict[str, Any]
"""An object of the API, as its JSON."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@light_dataclass(frozen=True)
class Kind:
    """A kind of objects; ``group`` is empty for the core."""

    group: str
    version: str
    plural: str
    name: str

    @property
    def api_version(self) -> str:
        """As it stands in an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Path of one object, or of all in the namespace; of all namespaces if that is empty."""
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
    """Objects of one kind in a namespace, chosen by labels and fields."""

    kind: Kind
    namespace: str
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        """The selectors that are set."""
        given = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in given.items() if value}


@light_dataclass(frozen=True)
class Call:
    """One request, and what it means to the user.

    Args:
        verb: as roles name it: ``get``, ``list``, ``create``.
        what: the plural, with the group where it has one.
        idempotent: carrying it out twice is like once.
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
        """Path and query, as they stand in the request."""
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
    """A request about objects of a kind."""
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
    """Status, headers (names in lower case) and the whole body."""

    code: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """The document in the body; ``ValueError`` if it is none."""
        return json.loads(self.body)


class Transport(Protocol):
    """Carries one call to the server and its answer back, whatever that says.

    The seam for clients that users bring. No retries, but for credentials that can be renewed.
    """

    def send(self, call: Call, timeout_s: float) -> Answer:
        """Raises ``NotSent``, ``AnswerLost`` or ``Untrusted``; never for a status."""
        ...

    def streams(self) -> "StreamTransport":
        """A transport for watches and logs to the same server."""
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...


class Stream(Protocol):
    """An answer whose body arrives as it is made."""

    code: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]:
        """The body; raises ``AnswerLost`` where it breaks off."""
        ...


class StreamTransport(Protocol):
    """Carries calls whose answers take long; used from one event loop."""

    def open(self, call: Call, read_timeout_s: float | None) -> AbstractAsyncContextManager[Stream]:
        """Sends the call; errors as those of ``Transport.send``."""
        ...

    async def send(self, call: Call, timeout_s: float) -> Answer:
        """One call and its whole answer."""
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...
