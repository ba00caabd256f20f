"""Converts AppWrappers to snapshots of apps. Pure."""

from collections.abc import Mapping
from typing import Any

from torchx.schedulers._kube.apps.app import App, NotedRole, Object, ended_mark
from torchx.schedulers._kube.apps.snapshots import Fate, Reader
from torchx.schedulers.api import AppState

JOB_STATE: Mapping[str, AppState] = {
    "Pending": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "RunningHoldCompletion": AppState.RUNNING,
    "Deleted": AppState.CANCELLED,
    "Failed": AppState.FAILED,
    "Empty": AppState.PENDING,
    "Suspended": AppState.PENDING,
    "Suspending": AppState.PENDING,
    "Resuming": AppState.PENDING,
    "Resetting": AppState.PENDING,
    "Terminating": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
}
"""States of AppWrappers of ``v1beta1``, phases of those of ``v1beta2``; others are ``UNKNOWN``."""
TASK_STATE: Mapping[str, AppState] = {
    "Pending dispatch": AppState.PENDING,
    "pending": AppState.PENDING,
    "running": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "failed": AppState.FAILED,
    "Unknown": AppState.UNKNOWN,
}
"""MCAD's counters of an AppWrapper's pods."""


def phase_of(wrapper: Object) -> str:
    """Returns its state or phase; empty if there is none yet."""
    status = wrapper.get("status") or {}
    return str(status.get("phase") or status.get("state") or "")


def wrapper_state(wrapper: Object) -> AppState:
    """Returns the state of an AppWrapper from its status."""
    if ended_mark(wrapper) == "cancelled" or "deletionTimestamp" in wrapper["metadata"]:
        return AppState.CANCELLED
    phase = phase_of(wrapper)
    return JOB_STATE.get(phase, AppState.UNKNOWN) if phase else AppState.PENDING


def is_over(wrapper: Object) -> bool:
    """Returns True if everything that it starts has ended."""
    return phase_of(wrapper) in ("Failed", "Succeeded", "Completed", "Deleted")


def is_going(app: App) -> bool:
    """Returns True if the AppWrapper is being deleted."""
    return any("deletionTimestamp" in wrapper["metadata"] for wrapper in app.jobs.values())


def fate_of(role: NotedRole, wrapper: Object | None, marked: bool) -> Fate:
    """Returns the fate of a role's replicas according to the AppWrapper."""
    if wrapper is None:
        return Fate(over=marked)
    phase = phase_of(wrapper)
    ending = bool(ended_mark(wrapper)) or "deletionTimestamp" in wrapper["metadata"]
    over = ending or is_over(wrapper)
    return Fate(
        succeeded=phase in ("Succeeded", "Completed"),
        over=over,
        ending=over,
        retries=max(role.retries - _restarts_of(wrapper), 0),
    )


def _restarts_of(wrapper: Object) -> int:
    return int((wrapper.get("status") or {}).get("resettingCount") or 0)


def restarts_of(app: App) -> int:
    """Returns how often the whole app was restarted."""
    return sum(map(_restarts_of, app.jobs.values()))


def failure_of(wrapper: Object) -> str:
    """Returns why an AppWrapper has failed, as its controller reports it."""
    if phase_of(wrapper) != "Failed":
        return ""
    return why_not(wrapper) or "Failed"


def why_not(wrapper: Object) -> str:
    """Returns the last message of its conditions, such as why it is not dispatched."""
    status = wrapper.get("status") or {}
    conditions: list[Mapping[str, Any]] = [*(status.get("conditions") or ())]
    told = [c for c in conditions if c.get("message") and not _is_usual(c)]
    if not told:
        return ""
    latest = told[-1]
    return f"{latest.get('reason', '')}: {latest['message']}".strip(": ")


def _is_usual(item: Mapping[str, Any]) -> bool:
    """Returns True for a condition without a problem."""
    if item.get("type") == "Unhealthy":
        return item.get("status") == "False"
    return item.get("type") in _OF_V1BETA2


_OF_V1BETA2 = ("QuotaReserved", "ResourcesDeployed", "PodsReady", "Unhealthy", "DeletingResources")

READER = Reader(fate_of, failure_of, restarts_of, "AppWrappers")
