"""The ``log`` subresource of pods."""

from collections.abc import AsyncIterator
from datetime import datetime

from .api import Target
from .http import Reply, Request
from .kinds import PODS
from .kubelet import Kubelet
from .pod_logs import SECOND_NS, Log
from .statuses import bad_request
from .store import Object, Store

CHUNK_LINES = 10
"""Lines in one chunk of a stream."""


def read_log(store: Store, kubelet: Kubelet | None, request: Request, target: Target) -> Reply:
    """The log of a container, followed if the query says so."""
    pod = store.get(PODS, target.namespace, target.name)
    query = request.query
    log = _log(kubelet, pod, query.get("container", ""), query.get("previous") == "true")
    since = query.get("sinceTime")
    tail = query.get("tailLines")
    first = log.start(_ns(since) if since else None, int(tail) if tail else None)
    lines = log.read(
        first,
        follow=query.get("follow") == "true",
        timestamps=query.get("timestamps") == "true",
        chunk_lines=CHUNK_LINES,
    )
    return Reply(content_type="text/plain", stream=_quiet(lines))


async def _quiet(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in lines:
        yield chunk


def _log(kubelet: Kubelet | None, pod: Object, container: str, previous: bool) -> Log:
    name = pod["metadata"]["name"]
    spec = pod["spec"]
    names = [c["name"] for c in (*(spec.get("initContainers") or ()), *spec["containers"])]
    if not container:
        if len(spec["containers"]) > 1:
            listed = " ".join(names)
            raise bad_request(
                f"a container name must be specified for pod {name}, choose one of: [{listed}]"
            )
        container = spec["containers"][0]["name"]
    if container not in names:
        raise bad_request(f"container {container} is not valid for pod {name}")
    running = kubelet.running.get((pod["metadata"]["namespace"], name)) if kubelet else None
    instances = running.instances.get(container, []) if running else []
    if previous:
        if len(instances) < 2:
            said = f'previous terminated container "{container}" in pod "{name}" not found'
            raise bad_request(said)
        return instances[-2].log
    if not instances:
        waiting = running.waiting.get(container, ("ContainerCreating", "")) if running else ("", "")
        said = f'container "{container}" in pod "{name}" is waiting to start: {waiting[0]}'
        raise bad_request(said)
    return instances[-1].log


def _ns(text: str) -> int:
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int(time.timestamp()) * SECOND_NS
