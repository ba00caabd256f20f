"""Parses fields of objects: why pods wait and how they ended, times and indexes. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from torchx._startup.dataclass import light_dataclass

Object = Mapping[str, Any]

_USUAL = ("ContainerCreating", "PodInitializing")
"""Reasons of a starting container, which carry no information."""
_EXPLAINING = ("FailedCreate", "FailedMount", "FailedScheduling", "FailedAttachVolume")
_OF_A_GROUP = "Unschedulable"
"""Volcano's reason of all events about a group of pods that does not fit."""
_OFTEN = 4
"""Seconds for which Volcano reports a group as not placed although all is well."""


@light_dataclass(frozen=True)
class Ended:
    """The end of a pod.

    Args:
        code: exit code of the container, signals from 128; ``None`` if none ran.
        reason: further information beyond the code; may be empty.
    """

    code: int | None
    reason: str = ""
    at_ns: int | None = None


def why_ended(pod: Object) -> Ended | None:
    """Returns how a pod ended, from its first failed container if any; ``None`` while it runs."""
    status = pod.get("status") or {}
    found = [*_terminated(pod)]
    phase = status.get("phase")
    if not found and phase not in ("Failed", "Succeeded"):
        return None
    failed = next((t for t in found if t.get("exitCode")), None)
    shown = failed or (found[0] if found else {})
    code = shown.get("exitCode")
    reason = _reason_of_container(shown) if failed else ""
    if phase == "Failed" and status.get("reason"):
        words = f"{status['reason']}: {status.get('message', '')}".strip(": ")
        reason = " ".join(words.split())
    disrupted = _condition(pod, "DisruptionTarget")
    if disrupted is not None and not reason:
        reason = f"{disrupted.get('reason', '')}: {disrupted.get('message', '')}"
    if code is None and not reason:
        reason = "ended without a container"
    return Ended(code, reason, parse_ns(shown.get("finishedAt")))


def _terminated(pod: Object) -> Iterator[Object]:
    status = pod.get("status") or {}
    for key in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(key) or ():
            terminated = (container.get("state") or {}).get("terminated")
            if terminated is not None and (key == "containerStatuses" or terminated["exitCode"]):
                yield terminated


def _reason_of_container(terminated: Object) -> str:
    reason = terminated.get("reason") or ""
    if reason == "OOMKilled":
        return "out of memory"
    if reason in ("Error", "Completed", ""):
        return ""
    return " ".join(f"{reason}: {terminated.get('message') or ''}".strip(": ").split())


def waiting_reason(pod: Object) -> str:
    """Returns why a pod does not run; empty if it is just starting."""
    scheduled = next(
        (
            c
            for c in (pod.get("status") or {}).get("conditions") or ()
            if c["type"] == "PodScheduled"
        ),
        None,
    )
    if scheduled is not None and scheduled["status"] == "False" and scheduled.get("message"):
        return f"{scheduled.get('reason', 'not scheduled')}: {scheduled['message']}"
    status = pod.get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") and waiting["reason"] not in _USUAL:
                return f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    return ""


def disturbance(pod: Object) -> str:
    """Returns why a live pod is about to end: its node is lost, or it is being evicted."""
    status = pod.get("status") or {}
    found = _condition(pod, "DisruptionTarget")
    if found is None and status.get("reason"):
        found = status
    if found is None:
        return ""
    return " ".join(f"{found['reason']}: {found.get('message', '')}".strip(": ").split())


def explanation(events: Iterable[Object]) -> str:
    """Returns the latest event with a reason why an object does not start; empty for none."""
    reasons = [e for e in events if _explains(e)]
    if not reasons:
        return ""
    latest = max(reasons, key=lambda event: (not _is_usual(event), _event_time(event)))
    return f"{latest['reason']}: {' '.join(str(latest.get('message', '')).split())}"


def _explains(event: Object) -> bool:
    if event.get("reason") == _OF_A_GROUP:
        return not _is_usual(event) or int(event.get("count") or 1) >= _OFTEN
    return event.get("type") == "Warning" and event.get("reason") in _EXPLAINING


def _is_usual(event: Object) -> bool:
    """Returns True for an event that Volcano sends for every group not placed yet."""
    return "tasks in gang unschedulable" in str(event.get("message"))


def _event_time(event: Object) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"))
    return str(next(filter(None, times), event["metadata"].get("creationTimestamp") or ""))


def _condition(pod: Object, type_: str) -> Object | None:
    found = (pod.get("status") or {}).get("conditions") or ()
    return next((c for c in found if c["type"] == type_ and c["status"] == "True"), None)


def parse_ns(text: str | None) -> int | None:
    """Parses ``2026-01-02T03:04:05Z`` to nanoseconds since the epoch; ``None`` for no time."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    seconds = int(moment.timestamp())
    return seconds * 1_000_000_000 + moment.microsecond * 1000 if seconds > 0 else None


def parse_indexes(text: str | None) -> set[int]:
    """Parses ``1,3-5``.

    >>> sorted(parse_indexes("1,3-5"))
    [1, 3, 4, 5]
    """
    found: set[int] = set()
    for part in filter(None, (text or "").split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
