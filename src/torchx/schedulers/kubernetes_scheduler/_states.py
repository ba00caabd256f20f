"""Jobs and Pods of the cluster as snapshots of apps. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx.schedulers._core.exits import from_shell
from torchx.schedulers.api import AppSnapshot, AppState, ReplicaSnapshot, Role
from torchx.specs.api import is_terminal

from ._pod import FAILURES_ANNOTATION, INDEX_ANNOTATION
from ._reasons import parse_indexes, parse_ns, waiting_reason, why_ended
from ._request import ANNOTATION_APP, ANNOTATION_ENDED, LABEL_QUEUE, LABEL_UNIQUE_NAME

Object = Mapping[str, Any]

IGNORED_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
_OLD_JOB_NAME_LABEL = "job-name"

POD_STATE: Mapping[str, AppState] = {
    "Pending": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
}
"""Phases of pods; ``Unknown``, of a node that is lost, and new ones are ``UNKNOWN``."""


@dataclass(frozen=True)
class NotedRole:
    """What a Job notes of a role."""

    name: str
    image: str
    replicas: int
    minimum: int | None
    retries: int
    job: str


@dataclass(frozen=True)
class App:
    """The Jobs of one app, by their names, and what they note of it."""

    id: str
    name: str
    ends_on_failure: bool
    roles: tuple[NotedRole, ...]
    jobs: Mapping[str, Object]
    pods: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """Of each Job."""

    @property
    def missing(self) -> list[str]:
        """Jobs that were not made, or are gone."""
        return [role.job for role in self.roles if role.job not in self.jobs]

    @property
    def half_submitted(self) -> bool:
        """Jobs were never released; or some are missing, and none of the others was."""
        held = [is_held(job) for job in self.jobs.values()]
        return all(held) if self.missing else any(held)


def parse_app(app_id: str, jobs: Iterable[Object], pods: Iterable[Object]) -> App | None:
    """What the objects of one app say; ``None`` if none of its Jobs is ours."""
    found: dict[str, Object] = {}
    noted: Mapping[str, Any] | None = None
    for job in jobs:
        text = (job["metadata"].get("annotations") or {}).get(ANNOTATION_APP)
        if text is not None:
            noted = noted or _read(text)
            found[job["metadata"]["name"]] = job
    if noted is None:
        return None
    by_job: dict[str, list[Object]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        name = labels.get(JOB_NAME_LABEL) or labels.get(_OLD_JOB_NAME_LABEL)
        by_job.setdefault(str(name), []).append(pod)
    return App(
        id=app_id,
        name=str(noted.get("name", "")),
        ends_on_failure=bool(noted.get("end", True)),
        roles=tuple(
            NotedRole(
                name=str(role["name"]),
                image=str(role.get("image", "")),
                replicas=int(role["replicas"]),
                minimum=role.get("min"),
                retries=int(role.get("retries", 0)),
                job=str(role["job"]),
            )
            for role in noted["roles"]
        ),
        jobs=found,
        pods=by_job,
    )


def _read(text: str) -> Mapping[str, Any] | None:
    """What an annotation notes; ``None`` if somebody else wrote it."""
    try:
        noted = json.loads(text)
    except ValueError:
        return None
    return noted if isinstance(noted, dict) and isinstance(noted.get("roles"), list) else None


def group_jobs(jobs: Iterable[Object]) -> dict[str, list[Object]]:
    """Jobs by the id of their app, the latest app first."""
    apps: dict[str, list[Object]] = {}
    for job in sorted(
        jobs, key=lambda j: str(j["metadata"].get("creationTimestamp")), reverse=True
    ):
        metadata = job["metadata"]
        name = (metadata.get("labels") or {}).get(LABEL_UNIQUE_NAME)
        if name:
            apps.setdefault(f"{metadata['namespace']}:{name}", []).append(job)
    return apps


# -- Jobs ----------------------------------------------------------------------------------------


def condition(obj: Object, *types: str) -> Object | None:
    """The first of these conditions that is true."""
    found = (obj.get("status") or {}).get("conditions") or ()
    for type_ in types:
        for item in found:
            if item.get("type") == type_ and item.get("status") == "True":
                return dict(item)
    return None


def is_held(job: Object) -> bool:
    """Whether the Job was made, and not yet released or put into a queue."""
    labels = job["metadata"].get("labels") or {}
    return bool(job["spec"].get("suspend")) and not ended_mark(job) and LABEL_QUEUE not in labels


def is_over(job: Object) -> bool:
    """Whether all has ended that the Job ever starts."""
    return condition(job, "Complete", "Failed") is not None


def ended_mark(job: Object) -> str:
    """``cancelled`` or ``failed`` for a Job that we ended; else empty."""
    return str((job["metadata"].get("annotations") or {}).get(ANNOTATION_ENDED) or "")


def starts_nothing(job: Object) -> bool:
    """Whether no pod is made any more, as far as the controller has noticed."""
    if condition(job, "Complete", "Failed", "FailureTarget", "SuccessCriteriaMet") is not None:
        return True
    return bool(ended_mark(job)) and condition(job, "Suspended") is not None


# -- snapshots -----------------------------------------------------------------------------------


def build_snapshot(app: App, explained: Mapping[str, str] | None = None) -> AppSnapshot:
    """The snapshot of an app.

    Args:
        explained: why the pods of a Job wait, by the name of the Job, where events tell.
    """
    replicas: list[ReplicaSnapshot] = []
    marked = any(ended_mark(job) for job in app.jobs.values())
    for role in app.roles:
        if role.job in app.jobs or app.half_submitted:
            fate = _Fate(role, app.jobs.get(role.job), marked)
            replicas += _replicas(role, fate, app.pods.get(role.job, ()))
    cancelled = any(ended_mark(job) == "cancelled" for job in app.jobs.values())
    restarts = sum(replica.attempt for replica in replicas)
    return AppSnapshot(
        app_id=app.id,
        replicas=tuple(replicas),
        roles=tuple(
            Role(r.name, r.image, num_replicas=r.replicas, min_replicas=r.minimum)
            for r in app.roles
        ),
        name=app.name,
        native_state=_native_state(app, replicas, cancelled),
        cancelled=cancelled,
        message=_message(app, replicas, explained or {}),
        restarts=restarts,
        ends_on_failure=app.ends_on_failure,
    )


def _native_state(
    app: App, replicas: Sequence[ReplicaSnapshot], cancelled: bool
) -> AppState | None:
    """``FAILED`` where the Jobs say so and no pod is left that tells why."""
    if cancelled or not all(is_terminal(replica.state) for replica in replicas):
        return None
    if any(replica.state is AppState.FAILED for replica in replicas):
        return None
    failed = any(condition(job, "Failed") for job in app.jobs.values())
    return AppState.FAILED if failed else None


def _replicas(role: NotedRole, fate: "_Fate", pods: Sequence[Object]) -> Iterable[ReplicaSnapshot]:
    by_index: dict[int, list[Object]] = {}
    for pod in pods:
        annotations = pod["metadata"].get("annotations") or {}
        index = annotations.get(INDEX_ANNOTATION, "")
        if index.isdigit():
            by_index.setdefault(int(index), []).append(pod)
    for k in range(role.replicas):
        tries = sorted(by_index.get(k, ()), key=_attempt_rank)
        yield fate.of_pod(k, tries[-1]) if tries else fate.without_pod(k)


class _Fate:
    """What becomes of the replicas of one role, by the word of its Job.

    Args:
        job: ``None`` if it was never made.
        marked: the app is being ended.
    """

    def __init__(self, role: NotedRole, job: Object | None, marked: bool) -> None:
        self._role = role
        status = (job or {}).get("status") or {}
        self._completed = parse_indexes(status.get("completedIndexes"))
        self._failed = parse_indexes(status.get("failedIndexes"))
        self._succeeded = bool(job and condition(job, "Complete"))
        failure = condition(job, "Failed", "FailureTarget") if job else None
        self._deadline = ""
        if failure is not None and failure.get("reason") == "DeadlineExceeded":
            self._deadline = f"deadline exceeded: {failure.get('message', '')}"
        self._over = marked if job is None else starts_nothing(job)
        self._ending = self._over or bool(job and ended_mark(job))

    def without_pod(self, k: int) -> ReplicaSnapshot:
        """A replica whose pod is not there yet, or was deleted."""
        state, reason = AppState.PENDING, ""
        if self._succeeded or k in self._completed:
            state = AppState.SUCCEEDED
        elif k in self._failed:
            state, reason = AppState.FAILED, "its pod is gone"
        elif self._deadline:
            state, reason = AppState.FAILED, self._deadline
        elif self._over:
            state = AppState.CANCELLED
        return ReplicaSnapshot(self._role.name, k, state, reason=reason)

    def of_pod(self, k: int, pod: Object) -> ReplicaSnapshot:
        """A replica by its latest pod."""
        ended = why_ended(pod)
        state = self._state(pod, ended.code if ended is not None else None)
        reason = ended.reason if ended is not None and state is AppState.FAILED else ""
        if state is AppState.PENDING:
            reason = waiting_reason(pod)
        if state is AppState.FAILED and self._deadline:
            reason = self._deadline
        code = ended.code if ended is not None and is_terminal(state) else None
        status = pod.get("status") or {}
        return ReplicaSnapshot(
            role=self._role.name,
            replica=k,
            state=state,
            exit_code=None if code is None else from_shell(code),
            reason=reason,
            host=_host(pod),
            attempt=attempt_of(pod),
            started_ns=parse_ns(status.get("startTime")),
            ended_ns=ended.at_ns if ended is not None else None,
            native_id=pod["metadata"]["name"],
        )

    def _state(self, pod: Object, code: int | None) -> AppState:
        state = pod_state(pod)
        if state is AppState.SUCCEEDED or (state is AppState.FAILED and code == 0):
            return AppState.SUCCEEDED
        if state is not AppState.FAILED:
            return self._live_state(pod, state)
        if self._deadline:
            return AppState.FAILED
        if "deletionTimestamp" in pod["metadata"] and (self._ending or code in _TOLD_TO_END):
            # ended by its Job, which may not have said yet that it is ending, or replaced
            return AppState.CANCELLED if self._ending else AppState.PENDING
        if condition(pod, "DisruptionTarget") is not None:
            # replaced, unless the Job has come to its end meanwhile
            return AppState.CANCELLED if self._over else AppState.PENDING
        retried = not self._ending and attempt_of(pod) < self._role.retries
        return AppState.PENDING if retried else AppState.FAILED

    def _live_state(self, pod: Object, state: AppState) -> AppState:
        """Of a pod that has not ended; one that never ran is as good as gone when its Job is."""
        if state is AppState.PENDING and self._over and "deletionTimestamp" in pod["metadata"]:
            return AppState.FAILED if self._deadline else AppState.CANCELLED
        return state


_TOLD_TO_END = (None, 128 + 15, 128 + 9)
"""How containers end that are deleted: by SIGTERM or SIGKILL, or before they ran."""


def pod_state(pod: Object) -> AppState:
    """State of a pod; a phase comes a second later than what its containers say."""
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    state = POD_STATE.get(phase, AppState.UNKNOWN)
    if state not in (AppState.PENDING, AppState.RUNNING):
        return state
    containers = status.get("containerStatuses") or ()
    states = [container.get("state") or {} for container in containers]
    all_told = bool(states) and len(states) == len(pod["spec"]["containers"])
    if all_told and all("terminated" in found for found in states):
        failed = any(found["terminated"].get("exitCode") for found in states)
        return AppState.FAILED if failed else AppState.SUCCEEDED
    if any("running" in found for found in states):
        return AppState.RUNNING
    return state


def attempt_of(pod: Object) -> int:
    """Number of pods that the replica had before."""
    annotations = pod["metadata"].get("annotations") or {}
    counts = (annotations.get(name, "0") for name in (FAILURES_ANNOTATION, IGNORED_ANNOTATION))
    return sum(int(count) if str(count).isdigit() else 0 for count in counts)


def _attempt_rank(pod: Object) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    return attempt_of(pod), str(metadata.get("creationTimestamp")), metadata["name"]


def _host(pod: Object) -> str:
    spec = pod["spec"]
    if spec.get("hostname") and spec.get("subdomain"):
        return f"{spec['hostname']}.{spec['subdomain']}"
    return str(spec.get("hostname") or pod["metadata"]["name"])


# -- words ---------------------------------------------------------------------------------------


def _message(app: App, replicas: Sequence[ReplicaSnapshot], explained: Mapping[str, str]) -> str:
    if app.half_submitted:
        return half_submitted_message(app)
    if app.missing:
        return f"{len(app.missing)} of {len(app.roles)} Jobs are gone"
    waiting = [replica for replica in replicas if replica.state is AppState.PENDING]
    if waiting:
        return _message_of_waiting(app, waiting, len(replicas), explained)
    failed = next((c for job in app.jobs.values() if (c := condition(job, "Failed"))), None)
    if failed is not None and not any(r.state is AppState.FAILED for r in replicas):
        return f"{failed.get('reason', '')}: {failed.get('message', '')}"
    return ""


def half_submitted_message(app: App) -> str:
    """Why nothing of the app runs, and what to do about it."""
    how = "its Jobs were never started"
    if app.missing:
        how = f"{len(app.missing)} of {len(app.roles)} Jobs were never made, and none was started"
    return f"half-submitted: {how}; remove the app with `torchx delete kubernetes:///{app.id}`"


def _message_of_waiting(
    app: App, waiting: Sequence[ReplicaSnapshot], total: int, explained: Mapping[str, str]
) -> str:
    job_of = {role.name: role.job for role in app.roles}
    for replica in waiting:
        words = replica.reason or explained.get(job_of[replica.role], "")
        if words:
            how_many = f"{len(waiting)} of {total} replicas wait: " if total > 1 else ""
            return how_many + words
    if all(job["spec"].get("suspend") and not ended_mark(job) for job in app.jobs.values()):
        return f"waits in queue `{queue_of(app)}`"
    return ""


def queue_of(app: App) -> str:
    """The LocalQueue that the app waits in; empty for none."""
    for job in app.jobs.values():
        queue = (job["metadata"].get("labels") or {}).get(LABEL_QUEUE)
        if queue:
            return str(queue)
    return ""


def row_state(app: App) -> AppState:
    """State of an app by its Jobs alone, for lists of many."""
    states = {_job_state(job) for job in app.jobs.values()}
    if AppState.RUNNING in states:
        return AppState.RUNNING
    if not all(is_terminal(state) for state in states):
        ended = any(is_terminal(state) for state in states)
        return AppState.RUNNING if ended else AppState.PENDING
    if any(ended_mark(job) == "cancelled" for job in app.jobs.values()):
        return AppState.CANCELLED
    return AppState.SUCCEEDED if states == {AppState.SUCCEEDED} else AppState.FAILED


def _job_state(job: Object) -> AppState:
    if condition(job, "Complete"):
        return AppState.SUCCEEDED
    if condition(job, "Failed"):
        return AppState.FAILED
    status = job.get("status") or {}
    if ended_mark(job) and condition(job, "Suspended") and not status.get("active"):
        return AppState.CANCELLED
    return AppState.RUNNING if status.get("ready") else AppState.PENDING
