"""Finds the logs of pods: the instances of their containers. No I/O."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from .calls import Object


@dataclass(frozen=True)
class LogSource:
    """An instance of a container.

    Args:
        uid: uid of the pod, because another pod may get its name later.
        attempt: number of earlier restarts of the container.
        tag: the caller's own data, not interpreted.
        restarts: True if another instance may follow.
    """

    namespace: str
    pod: str
    uid: str
    container: str
    attempt: int = 0
    tag: object = field(default=None, compare=False)
    restarts: bool = field(default=False, compare=False)


class SourceState(Enum):
    """The state of an instance according to its pod."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    REPLACED = "replaced"
    """Ended, and the container runs again: its log is the `previous` one."""
    GONE = "gone"


OVER = (SourceState.ENDED, SourceState.REPLACED, SourceState.GONE)
"""States after which nothing is written any more."""


def started_sources(pod: Object, tag: object = None, *, previous: bool = False) -> list[LogSource]:
    """Returns the instances of a pod with a log; with ``previous`` also earlier ones."""
    metadata = pod["metadata"]
    restarting = _restarting(pod.get("spec") or {})
    found = []
    for status in _statuses(pod):
        restarts = int(status.get("restartCount") or 0)
        states = (status.get("state") or {}, status.get("lastState") or {})
        attempts: Iterable[int] = ()
        if "running" in states[0] or any("terminated" in state for state in states):
            attempts = (restarts,)
        if previous and restarts:
            attempts = (restarts - 1, *attempts)
        for attempt in attempts:
            where = (metadata["namespace"], metadata["name"], metadata["uid"], status["name"])
            found.append(LogSource(*where, attempt, tag, status["name"] in restarting))
    return found


def _restarting(spec: Object) -> set[str]:
    """Returns the names of containers that are restarted after their end."""
    inits, mains = spec.get("initContainers") or (), spec.get("containers") or ()
    if spec.get("restartPolicy", "Always") != "Never":
        return {container["name"] for container in (*inits, *mains)}
    return {container["name"] for container in inits if container.get("restartPolicy")}


def state_of(source: LogSource, pod: Object | None) -> SourceState:
    """Returns the state of the instance according to its pod, ``None`` if it is missing."""
    if pod is None or pod["metadata"]["uid"] != source.uid:
        return SourceState.GONE
    status = next((s for s in _statuses(pod) if s["name"] == source.container), None)
    if status is None:
        return SourceState.WAITING
    replaced = int(status.get("restartCount") or 0) - source.attempt
    if replaced:
        return SourceState.REPLACED if replaced == 1 else SourceState.GONE
    state = status.get("state") or {}
    waits_for_restart = "waiting" in state and "terminated" in (status.get("lastState") or {})
    if "terminated" in state or waits_for_restart:
        return SourceState.ENDED
    return SourceState.RUNNING if "running" in state else SourceState.WAITING


def _statuses(pod: Object) -> Iterator[Object]:
    status = pod.get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        yield from status.get(key) or ()
