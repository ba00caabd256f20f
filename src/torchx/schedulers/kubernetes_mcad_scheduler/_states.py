"""Converts AppWrappers to snapshots of apps. Pure."""

from collections.abc import Mapping
from typing import Any

from torchx.schedulers._kube.apps.app import App, NotedRole, Object, ended_mark
from torchx.schedulers._kube.apps.indexed import fails_as_a_whole
from torchx.schedulers._kube.apps.snapshots import Fate, Reader, condition_words
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


def needs_nobody(app: App) -> bool:
    """Returns True if the cluster ends the whole app when one replica has failed for good.

    A Job ends its pods; bare pods do not end others.
    """
    parts = [part for job in app.jobs.values() for part in job["spec"].get("components") or ()]
    specs = [part["template"]["spec"] for part in parts if part["template"]["kind"] == "Job"]
    return len(specs) == 1 and fails_as_a_whole(specs[0])


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
    """Returns the last reason in its conditions, such as for waiting; empty if none."""
    status = wrapper.get("status") or {}
    conditions: list[Mapping[str, Any]] = [*(status.get("conditions") or ())]
    problems = [c for c in conditions if _is_problem(c, c is conditions[-1])]
    return condition_words(problems[-1]) if problems else ""


def _is_problem(item: Mapping[str, Any], last: bool) -> bool:
    """Returns True if the condition reports a problem; some do by their reason alone."""
    kind = item.get("type")
    if kind == "Unhealthy":
        return item.get("status") != "False"
    if kind in _QUEUED:
        return last
    return bool(item.get("message")) and kind not in _OF_V1BETA2


_QUEUED = ("Queueing", "HeadOfLine")
"""Of ``v1beta1``; they stay in the list when the queue is over."""
_OF_V1BETA2 = ("QuotaReserved", "ResourcesDeployed", "PodsReady", "DeletingResources")
"""They say how far it is."""

READER = Reader(fate_of, failure_of, restarts_of, "AppWrappers")
