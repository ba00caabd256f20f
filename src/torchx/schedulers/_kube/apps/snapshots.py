"""Converts objects and Pods of the cluster to snapshots of apps. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torchx._startup.dataclass import light_dataclass
from torchx.schedulers._core.exits import from_shell
from torchx.schedulers.api import AppSnapshot, AppState, ReplicaSnapshot, Role
from torchx.specs.api import is_terminal

from .app import App, NotedRole, Object, condition, ended_mark, queue_of
from .labels import LABEL_REPLICA_ID
from .reasons import disturbance, parse_ns, waiting_reason, why_ended

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"
VOLCANO_RETRIES_ANNOTATION = "volcano.sh/job-retry-count"
JOB_SET_RESTARTS_LABEL = "jobset.sigs.k8s.io/restart-attempt"

POD_STATE: Mapping[str, AppState] = {
    "Pending": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
}
"""Phases of pods; ``Unknown``, of a node that is lost, and new ones are ``UNKNOWN``."""

_TOLD_TO_END = (None, 128 + 15, 128 + 9)
"""Exit codes of deleted containers: by SIGTERM or SIGKILL, or before they ran."""


@light_dataclass(frozen=True)
class Fate:
    """The fate of a role's replicas, as reported by the object that creates its pods.

    Args:
        succeeded: all required replicas have succeeded.
        completed, failed: indexes of such replicas, if they are reported.
        deadline: why it was ended by a time limit; empty if it was not.
        over: no pod will be created any more, as far as the cluster has noticed.
        ending: pods that end from now on were ended by the cluster.
        retries: number of retries of a failed replica.
    """

    succeeded: bool = False
    completed: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    deadline: str = ""
    over: bool = False
    ending: bool = False
    retries: int = 0

    def without_pod(self, role: str, k: int) -> ReplicaSnapshot:
        """Returns the snapshot of a replica whose pod does not exist yet, or was deleted."""
        state, reason = AppState.PENDING, ""
        if self.succeeded or k in self.completed:
            state = AppState.SUCCEEDED
        elif k in self.failed:
            state, reason = AppState.FAILED, "its pod is gone"
        elif self.deadline:
            state, reason = AppState.FAILED, self.deadline
        elif self.over:
            state = AppState.CANCELLED
        return ReplicaSnapshot(role, k, state, reason=reason)

    def of_pod(self, role: str, k: int, pod: Object) -> ReplicaSnapshot:
        """Returns the snapshot of a replica from its latest pod."""
        ended = why_ended(pod)
        state = self._state(pod, ended.code if ended is not None else None)
        reason = ended.reason if ended is not None and state is AppState.FAILED else ""
        if state is AppState.PENDING:
            reason = waiting_reason(pod)
        elif state in (AppState.RUNNING, AppState.UNKNOWN):
            reason = disturbance(pod)
        if ended is not None and condition(pod, "DisruptionTarget") is not None:
            reason = ended.reason  # also for a replaced pod
        if state is AppState.FAILED and self.deadline:
            reason = self.deadline
        code = ended.code if ended is not None and is_terminal(state) else None
        status = pod.get("status") or {}
        return ReplicaSnapshot(
            role=role,
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
        if self.deadline:
            return AppState.FAILED
        if "deletionTimestamp" in pod["metadata"] and (self.ending or code in _TOLD_TO_END):
            # ended by its owner, which may not report its own end yet, or replaced
            return AppState.CANCELLED if self.ending else AppState.PENDING
        if condition(pod, "DisruptionTarget") is not None:
            # replaced, unless all has ended meanwhile
            return AppState.CANCELLED if self.over else AppState.PENDING
        retried = not self.ending and attempt_of(pod) < self.retries
        return AppState.PENDING if retried else AppState.FAILED

    def _live_state(self, pod: Object, state: AppState) -> AppState:
        """Returns the state of a live pod; one that never ran counts as gone when its Job is."""
        if state is AppState.PENDING and self.over and "deletionTimestamp" in pod["metadata"]:
            return AppState.FAILED if self.deadline else AppState.CANCELLED
        return state


@light_dataclass(frozen=True)
class Reader:
    """The functions that parse the main objects of one kind.

    Args:
        fate: returns the fate of a role from its object (``None`` if never created); its flag is
            ``True`` for an app that is being ended.
        failure: returns why an object has failed, as the cluster reports it; empty if it has not.
        restarts: returns the restarts of the app; ``None`` for the sum over its replicas.
        noun: name of such objects in messages.
    """

    fate: Callable[[NotedRole, Object | None, bool], Fate]
    failure: Callable[[Object], str]
    restarts: Callable[[App], int] | None = None
    noun: str = "Jobs"


def build_snapshot(
    app: App, reader: Reader, explained: Mapping[str, str] | None = None
) -> AppSnapshot:
    """Builds the snapshot of an app.

    Args:
        explained: why the pods of an object wait, by its name, if events report it.
    """
    replicas: list[ReplicaSnapshot] = []
    marked = any(ended_mark(job) for job in app.jobs.values())
    for role in app.roles:
        if role.job in app.jobs or app.half_submitted:
            fate = reader.fate(role, app.jobs.get(role.job), marked)
            replicas += _replicas(role, fate, app.pods.get(role.name, ()))
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
        native_state=_native_state(app, reader, replicas, cancelled),
        cancelled=cancelled,
        message=_message(app, reader, replicas, explained or {}),
        restarts=restarts if reader.restarts is None else reader.restarts(app),
        ends_on_failure=app.ends_on_failure,
        created_ns=created_ns(app),
    )


def created_ns(app: App) -> int | None:
    """Returns when the first object of the app was created; ``None`` if there is none."""
    times = (parse_ns(job["metadata"].get("creationTimestamp")) for job in app.jobs.values())
    return min((made for made in times if made is not None), default=None)


def _native_state(
    app: App, reader: Reader, replicas: Sequence[ReplicaSnapshot], cancelled: bool
) -> AppState | None:
    """Returns ``FAILED`` if the objects report it and no pod with the reason is left."""
    if cancelled or not all(is_terminal(replica.state) for replica in replicas):
        return None
    if any(replica.state is AppState.FAILED for replica in replicas):
        return None
    failed = any(reader.failure(job) for job in app.jobs.values())
    return AppState.FAILED if failed else None


def _replicas(role: NotedRole, fate: Fate, pods: Sequence[Object]) -> Iterable[ReplicaSnapshot]:
    by_index: dict[int, list[Object]] = {}
    for pod in pods:
        index = replica_of(pod)
        if index is not None:
            by_index.setdefault(index, []).append(pod)
    for k in range(role.replicas):
        tries = sorted(by_index.get(k, ()), key=_attempt_rank)
        yield fate.of_pod(role.name, k, tries[-1]) if tries else fate.without_pod(role.name, k)


def replica_of(pod: Object) -> int | None:
    """Returns the index of the pod's replica in its role."""
    metadata = pod["metadata"]
    index = (metadata.get("annotations") or {}).get(INDEX_ANNOTATION)
    if index is None:
        index = (metadata.get("labels") or {}).get(LABEL_REPLICA_ID, "")
    return int(index) if str(index).isdigit() else None


def pod_state(pod: Object) -> AppState:
    """Returns the state of a pod; phases lag a second behind the states of containers."""
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
    """Returns the number of earlier pods of the replica."""
    metadata = pod["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    counts = [
        annotations.get(FAILURES_ANNOTATION, "0"),
        annotations.get(IGNORED_ANNOTATION, "0"),
        annotations.get(VOLCANO_RETRIES_ANNOTATION, "0"),
        labels.get(JOB_SET_RESTARTS_LABEL, "0"),
    ]
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


def _message(
    app: App, reader: Reader, replicas: Sequence[ReplicaSnapshot], explained: Mapping[str, str]
) -> str:
    if app.half_submitted:
        return half_submitted_message(app, reader.noun)
    if app.missing:
        return f"{_how_many_missing(app, reader.noun)} are gone"
    waiting = [replica for replica in replicas if replica.state is AppState.PENDING]
    if waiting:
        return _message_of_waiting(app, waiting, len(replicas), explained)
    disturbed = next((r for r in replicas if r.reason and not is_terminal(r.state)), None)
    if disturbed is not None:
        return f"{disturbed.role}/{disturbed.replica}: {disturbed.reason}"
    failed = next(filter(None, map(reader.failure, app.jobs.values())), "")
    if failed and not any(r.state is AppState.FAILED for r in replicas):
        return failed
    return ""


def half_submitted_message(app: App, noun: str) -> str:
    """Returns why no part of the app runs, and what to do about it."""
    how = f"its {noun} were never started"
    if app.missing:
        how = f"{_how_many_missing(app, noun)} were never made, and none was started"
    return f"half-submitted: {how}; remove the app with `torchx delete kubernetes:///{app.id}`"


def _how_many_missing(app: App, noun: str) -> str:
    return f"{len(app.missing)} of {len({role.job for role in app.roles})} {noun}"


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


def sum_states(states: "set[AppState]", cancelled: bool) -> AppState:
    """Derives the state of an app from its main objects alone, for lists."""
    if AppState.RUNNING in states:
        return AppState.RUNNING
    if not all(is_terminal(state) for state in states):
        if AppState.UNKNOWN in states:
            return AppState.UNKNOWN
        ended = any(is_terminal(state) for state in states)
        return AppState.RUNNING if ended else AppState.PENDING
    if AppState.FAILED in states and not cancelled:
        return AppState.FAILED
    ended = cancelled or AppState.CANCELLED in states
    return AppState.CANCELLED if ended else AppState.SUCCEEDED


def condition_words(item: Mapping[str, Any]) -> str:
    """Returns ``reason: message`` of a condition or a status."""
    return f"{item.get('reason', '')}: {item.get('message', '')}".strip(": ")
