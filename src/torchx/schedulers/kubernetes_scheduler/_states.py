"""Parses objects of each kind for snapshots of apps. Pure."""

from collections.abc import Mapping

from torchx.schedulers._kube.apps.app import App, NotedRole, Object, condition, ended_mark
from torchx.schedulers._kube.apps.indexed import fails_as_a_whole
from torchx.schedulers._kube.apps.reasons import parse_indexes
from torchx.schedulers._kube.apps.snapshots import (
    FAILURES_ANNOTATION,
    Fate,
    Reader,
    condition_words,
    sum_states,
)
from torchx.schedulers.api import AppState

# -- Jobs ----------------------------------------------------------------------------------------


def is_over(job: Object) -> bool:
    """Returns True if everything that the object starts has ended."""
    if condition(job, "Complete", "Failed", "Completed") is not None:
        return True
    return volcano_phase(job) in VOLCANO_ENDED


def starts_nothing(job: Object) -> bool:
    """Returns True if no pod will be created any more, as far as the controller has noticed."""
    if condition(job, "Complete", "Failed", "FailureTarget", "SuccessCriteriaMet") is not None:
        return True
    return bool(ended_mark(job)) and condition(job, "Suspended") is not None


def job_fate(role: NotedRole, job: Object | None, marked: bool) -> Fate:
    """Returns the fate of a role's replicas according to its Job."""
    status = (job or {}).get("status") or {}
    over = marked if job is None else starts_nothing(job)
    return Fate(
        succeeded=bool(job and condition(job, "Complete")),
        completed=frozenset(parse_indexes(status.get("completedIndexes"))),
        failed=frozenset(parse_indexes(status.get("failedIndexes"))),
        deadline=_deadline(job),
        over=over,
        ending=over or bool(job and ended_mark(job)),
        retries=role.retries,
    )


def _deadline(job: Object | None) -> str:
    failure = condition(job, "Failed", "FailureTarget") if job else None
    if failure is None or failure.get("reason") != "DeadlineExceeded":
        return ""
    return f"deadline exceeded: {failure.get('message', '')}"


def _failed_condition(obj: Object) -> str:
    failed = condition(obj, "Failed")
    return condition_words(failed) if failed is not None else ""


def job_state(job: Object) -> AppState:
    """Returns the state of a Job from its status."""
    if condition(job, "Complete"):
        return AppState.SUCCEEDED
    if condition(job, "Failed"):
        return AppState.FAILED
    status = job.get("status") or {}
    if ended_mark(job) and condition(job, "Suspended") and not status.get("active"):
        return AppState.CANCELLED
    return AppState.RUNNING if status.get("ready") else AppState.PENDING


# -- JobSets -------------------------------------------------------------------------------------


def job_set_fate(role: NotedRole, job_set: Object | None, marked: bool) -> Fate:
    """Returns the fate of a role's replicas according to the JobSet."""
    if job_set is None:
        return Fate(over=marked)
    ended = condition(job_set, "Completed", "Failed")
    over = ended is not None or starts_nothing(job_set)
    return Fate(
        succeeded=bool(ended and ended["type"] == "Completed"),
        deadline=_deadline(job_set),
        over=over,
        ending=over or bool(ended_mark(job_set)),
        retries=role.retries,
    )


def job_set_restarts(app: App) -> int:
    """Returns the number of restarts of the set, and of single replicas."""
    from_set = sum(int((j.get("status") or {}).get("restarts") or 0) for j in app.jobs.values())
    alone = [
        (pod["metadata"].get("annotations") or {}).get(FAILURES_ANNOTATION, "0")
        for pods in app.pods.values()
        for pod in pods
    ]
    return from_set + max((int(count) for count in alone if str(count).isdigit()), default=0)


def job_set_state(job_set: Object) -> AppState:
    """Returns the state of a JobSet from its status."""
    if condition(job_set, "Completed"):
        return AppState.SUCCEEDED
    if condition(job_set, "Failed"):
        return AppState.FAILED
    counts = (job_set.get("status") or {}).get("replicatedJobsStatus") or ()
    if ended_mark(job_set) and condition(job_set, "Suspended"):
        return AppState.CANCELLED
    running = any(count.get("ready") or count.get("succeeded") for count in counts)
    return AppState.RUNNING if running else AppState.PENDING


# -- Jobs of Volcano -----------------------------------------------------------------------------

JOB_STATE: Mapping[str, AppState] = {
    "Pending": AppState.PENDING,
    "Aborting": AppState.RUNNING,
    "Aborted": AppState.CANCELLED,
    "Running": AppState.RUNNING,
    "Restarting": AppState.RUNNING,
    "Completing": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Terminating": AppState.RUNNING,
    "Terminated": AppState.FAILED,
    "Failed": AppState.FAILED,
}
"""Phases of Jobs of Volcano; others are ``UNKNOWN``."""
TASK_STATE: Mapping[str, AppState] = {
    "Pending": AppState.PENDING,
    "Allocated": AppState.PENDING,
    "Pipelined": AppState.PENDING,
    "Binding": AppState.PENDING,
    "Bound": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Releasing": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
    "Unknown": AppState.UNKNOWN,
}
"""Phases of the tasks of Volcano."""
VOLCANO_ENDED = ("Completed", "Aborted", "Terminated", "Failed")
_ENDING = ("Completing", "Aborting", "Terminating", *VOLCANO_ENDED)


def volcano_phase(job: Object) -> str:
    """Returns the phase of a Volcano Job; empty if there is none yet."""
    return str(((job.get("status") or {}).get("state") or {}).get("phase") or "")


def volcano_fate(role: NotedRole, job: Object | None, marked: bool) -> Fate:
    """Returns the fate of a role's replicas according to the Volcano Job."""
    if job is None:
        return Fate(over=marked)
    phase = volcano_phase(job)
    return Fate(
        succeeded=phase == "Completed",
        over=phase in VOLCANO_ENDED,
        ending=phase in _ENDING or bool(ended_mark(job)),
        retries=role.retries,
    )


def volcano_restarts(app: App) -> int:
    """Returns how often the Job has restarted tasks; its end counts as the last time."""
    found = 0
    for job in app.jobs.values():
        count = int((job.get("status") or {}).get("retryCount") or 0)
        found += min(count, max(int(job["spec"].get("maxRetry") or 0) - 1, 0))
    return found


def volcano_failure(job: Object) -> str:
    """Returns why a Volcano Job has failed."""
    phase = volcano_phase(job)
    if JOB_STATE.get(phase) is not AppState.FAILED:
        return ""
    state = job["status"]["state"]
    words = {"reason": state.get("reason") or phase, "message": state.get("message") or ""}
    return condition_words(words)


def volcano_state(job: Object) -> AppState:
    """Returns the state of a Volcano Job from its status."""
    phase = volcano_phase(job)
    state = JOB_STATE.get(phase, AppState.UNKNOWN) if phase else AppState.PENDING
    if state is AppState.FAILED and ended_mark(job) == "cancelled":
        return AppState.CANCELLED
    return state


# -- all kinds -----------------------------------------------------------------------------------

READERS: Mapping[str, Reader] = {
    "job": Reader(job_fate, _failed_condition),
    "jobset": Reader(job_set_fate, _failed_condition, job_set_restarts, "JobSets"),
    "volcano": Reader(volcano_fate, volcano_failure, volcano_restarts),
}
"""Functions by the value of the option ``job_api``."""

_STATES = {"job": job_state, "jobset": job_set_state, "volcano": volcano_state}


def row_state(app: App, api: str = "job") -> AppState:
    """Returns the state of an app from its main objects alone, for lists."""
    states = {_STATES[api](job) for job in app.jobs.values()}
    cancelled = any(ended_mark(job) == "cancelled" for job in app.jobs.values())
    return sum_states(states, cancelled)


def ends_itself(obj: Object) -> bool:
    """Returns True if the cluster ends all of the app when one replica has failed for good."""
    if obj.get("kind") == "JobSet":
        return True
    return any("PodFailed" in str(policy) for policy in obj["spec"].get("policies") or ())


def needs_nobody(app: App) -> bool:
    """Whether the cluster ends all of the app when one replica has failed for good: a Job ends its
    own role only, which is enough for an app of one."""
    objects = [*app.jobs.values()]
    return len(objects) == 1 and (ends_itself(objects[0]) or fails_as_a_whole(objects[0]["spec"]))
