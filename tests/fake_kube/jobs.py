"""The controller of ``batch/v1`` Jobs.

https://kubernetes.io/docs/concepts/workloads/controllers/job/
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .controllers import Controller, active, phase, pod_of, pods_of, suffix, with_env
from .kinds import JOBS, PODS
from .store import Object, Store, now

INDEX = "batch.kubernetes.io/job-completion-index"
_PARALLEL_CREATES = 500
_UNLIMITED = 2147483647


@dataclass
class _Tally:
    """What became of a Job's pods."""

    active: dict[int, list[Object]] = field(default_factory=dict)
    succeeded: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    failed_for_good: set[int] = field(default_factory=set)
    failed_pods: int = 0
    succeeded_pods: int = 0
    verdict: tuple[str, str] | None = None


class JobController(Controller):
    """Makes the pods of Jobs and counts them.

    Args:
        remove: takes an object out of the store, pods gracefully.
        back_off_s: before the first retry; a real cluster waits 10 s and doubles that.
    """

    def __init__(self, store: Store, remove: Callable[..., None], back_off_s: float = 0.02) -> None:
        super().__init__(store, JOBS, (PODS,))
        self._remove = remove
        self._back_off_s = back_off_s
        self._not_before_s: dict[tuple[str, int], float] = {}

    def sync(self, job: Object) -> None:
        spec, status = job["spec"], job.get("status") or {}
        if _condition(status, "Complete") or _condition(status, "Failed"):
            self._after_the_end(job, status)
            return
        if spec.get("suspend"):
            self._suspend(job, status)
            return
        tally = self._tally(job)
        verdict = tally.verdict or self._verdict(job, status, tally)
        if verdict is None:
            self._fill(job, tally)
        else:
            for pods in tally.active.values():
                for pod in pods:
                    self._remove(PODS, pod)
        self._write(job, verdict)

    def _after_the_end(self, job: Object, status: Object) -> None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        ended_s = self._not_before_s.setdefault((job["metadata"]["uid"], -1), time.monotonic())
        if ttl is None:
            return
        left_s = ended_s + ttl - time.monotonic()
        if left_s <= 0:
            self._remove(JOBS, job)
        else:
            self.again(_key(job), left_s)

    def _suspend(self, job: Object, status: Object) -> None:
        for pod in pods_of(self.store, job):
            if active(pod):
                self._remove(PODS, pod)
        conditions = _with_condition(status, "Suspended", "True", "JobSuspended", "Job suspended")
        rest = {k: v for k, v in status.items() if k not in ("startTime", "active", "ready")}
        self.store.change(JOBS, job, status={**rest, "conditions": conditions})

    def _tally(self, job: Object) -> _Tally:
        spec = job["spec"]
        tally = _Tally()
        per_index = spec.get("backoffLimitPerIndex")
        for pod in pods_of(self.store, job):
            index = _index(pod)
            if active(pod):
                tally.active.setdefault(index, []).append(pod)
            elif phase(pod) == "Succeeded":
                tally.succeeded.add(index)
                tally.succeeded_pods += 1
            else:
                self._count_failure(spec, pod, index, tally)
        if per_index is not None:
            tally.failed_for_good |= {i for i, n in tally.failures.items() if n > per_index}
        return tally

    def _count_failure(self, spec: Object, pod: Object, index: int, tally: _Tally) -> None:
        action, rule = _policy_action(spec.get("podFailurePolicy"), pod)
        tally.failed_pods += action != "Ignore"
        if action == "Ignore":
            return
        tally.failures[index] = tally.failures.get(index, 0) + 1
        if action == "FailIndex":
            tally.failed_for_good.add(index)
        elif action == "FailJob":
            tally.verdict = ("PodFailurePolicy", f"{rule} of pod {pod['metadata']['name']}")

    def _verdict(self, job: Object, status: Object, tally: _Tally) -> tuple[str, str] | None:
        """Reason and message of the end, the reason empty for success; ``None`` if it goes on."""
        spec = job["spec"]
        completions = spec.get("completions")
        deadline_s = spec.get("activeDeadlineSeconds")
        if deadline_s is not None:
            started_s = self._not_before_s.setdefault(
                (job["metadata"]["uid"], -2), time.monotonic()
            )
            left_s = started_s + deadline_s - time.monotonic()
            if left_s <= 0:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self.again(_key(job), left_s)
        if spec.get("backoffLimitPerIndex") is not None:
            return _verdict_per_index(spec, tally)
        done = tally.succeeded if spec.get("completionMode") == "Indexed" else tally.succeeded_pods
        count = len(done) if isinstance(done, set) else done
        if count >= (completions if completions is not None else 1):
            return "", "Reached expected number of succeeded pods"
        if sum(tally.failures.values()) > spec.get("backoffLimit", 6):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        return None

    def _fill(self, job: Object, tally: _Tally) -> None:
        """Makes the pods that are missing, as many at a time as may run."""
        spec = job["spec"]
        completions = spec.get("completions")
        parallelism = spec.get("parallelism", 1)
        free = parallelism - sum(map(len, tally.active.values()))
        indexed = spec.get("completionMode") == "Indexed"
        wanted = range(completions if completions is not None else parallelism)
        made = 0
        for index in wanted:
            if free <= 0 or made >= _PARALLEL_CREATES:
                break
            slot = index if indexed else -1
            if indexed and (
                index in tally.succeeded or index in tally.failed_for_good or index in tally.active
            ):
                continue
            if not indexed and tally.succeeded_pods + len(tally.active.get(-1, ())) + made >= len(
                wanted
            ):
                break
            if self._must_wait(job, slot, tally.failures.get(slot, 0)):
                continue
            self._create_pod(job, slot, tally.failures.get(slot, 0))
            free -= 1
            made += 1
        if made >= _PARALLEL_CREATES:
            self.again(_key(job), 0)

    def _must_wait(self, job: Object, index: int, failures: int) -> bool:
        """Whether the pause before a retry is not over yet."""
        if failures == 0:
            return False
        key = (f"{job['metadata']['uid']}/{failures}", index)
        pause_s = self._back_off_s * 2 ** (failures - 1)
        not_before_s = self._not_before_s.setdefault(key, time.monotonic() + pause_s)
        left_s = not_before_s - time.monotonic()
        if left_s <= 0:
            return False
        self.again(_key(job), left_s)
        return True

    def _create_pod(self, job: Object, index: int, failures: int) -> None:
        metadata = job["metadata"]
        labels = {
            "batch.kubernetes.io/controller-uid": metadata["uid"],
            "batch.kubernetes.io/job-name": metadata["name"],
            "controller-uid": metadata["uid"],
            "job-name": metadata["name"],
        }
        annotations: dict[str, str] = {}
        name = f"{metadata['name']}-{suffix()}"
        adapt: Callable[[Object], Object] = _unchanged
        if index >= 0:
            labels[INDEX] = annotations[INDEX] = str(index)
            name = f"{metadata['name']}-{index}-{suffix()}"
            adapt = _indexed(metadata["name"], index)
            if job["spec"].get("backoffLimitPerIndex") is not None:
                annotations["batch.kubernetes.io/job-index-failure-count"] = str(failures)
        pod = pod_of(JOBS, job, job["spec"]["template"], name, labels, annotations, adapt)
        self.store.create(PODS, pod)

    def _write(self, job: Object, verdict: tuple[str, str] | None) -> None:
        """Updates the status; an ended Job has none active any more."""
        job = self.store.get(JOBS, *_key(job))
        tally = self._tally(job)
        status = dict(job.get("status") or {})
        status.setdefault("startTime", now())
        pods = [pod for pods in tally.active.values() for pod in pods]
        counts: dict[str, Any] = {
            "active": 0 if verdict else len(pods),
            "ready": 0 if verdict else sum(phase(pod) == "Running" for pod in pods),
            "succeeded": tally.succeeded_pods,
            "failed": tally.failed_pods + (len(pods) if verdict and verdict[0] else 0),
        }
        if job["spec"].get("completionMode") == "Indexed":
            counts["completedIndexes"] = intervals(tally.succeeded)
        if job["spec"].get("backoffLimitPerIndex") is not None:
            counts["failedIndexes"] = intervals(tally.failed_for_good)
        status |= counts
        status = {k: v for k, v in status.items() if v not in (0, "") or k == "ready"}
        if _condition(status, "Suspended"):
            status["conditions"] = _with_condition(status, "Suspended", "False", "JobResumed", "")
        if verdict:
            reason, message = verdict
            first, last = (
                ("FailureTarget", "Failed") if reason else ("SuccessCriteriaMet", "Complete")
            )
            for type_ in (first, last):
                word = reason or "CompletionsReached"
                status["conditions"] = _with_condition(status, type_, "True", word, message)
            if not reason:
                status["completionTime"] = now()
        self.store.change(JOBS, job, status=status)


def _verdict_per_index(spec: Object, tally: _Tally) -> tuple[str, str] | None:
    completions = spec["completions"]
    failed = tally.failed_for_good - tally.succeeded
    most = spec.get("maxFailedIndexes")
    if most is not None and len(failed) > most:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return "MaxFailedIndexesExceeded", message
    if len(failed) + len(tally.succeeded) < completions:
        return None
    if failed:
        return "FailedIndexes", "Job has failed indexes"
    return "", "Reached expected number of succeeded pods"


def _policy_action(policy: Object | None, pod: Object) -> tuple[str, str]:
    """The first rule that matches the failed pod; failures count where none does."""
    for i, rule in enumerate((policy or {}).get("rules") or ()):
        if _rule_matches(rule, pod):
            return rule["action"], f"matched rule {i} ({rule['action']})"
    return "Count", ""


def _rule_matches(rule: Object, pod: Object) -> bool:
    for pattern in rule.get("onPodConditions") or ():
        wanted = (pattern["type"], pattern.get("status", "True"))
        there = pod["status"].get("conditions") or ()
        if wanted in [(c["type"], c["status"]) for c in there]:
            return True
    on_codes = rule.get("onExitCodes")
    if not on_codes:
        return False
    for status in pod["status"].get("containerStatuses") or ():
        code = (status["state"].get("terminated") or {}).get("exitCode")
        name = on_codes.get("containerName")
        listed = code in on_codes["values"]
        if code and name in (None, status["name"]) and listed is (on_codes["operator"] == "In"):
            return True
    return False


def _unchanged(spec: Object) -> Object:
    return spec


def _indexed(job: str, index: int) -> Callable[[Object], Object]:
    """The variable comes last, after all that the template has; the host name has the index."""
    field_path = {"fieldPath": f"metadata.labels['{INDEX}']"}
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field_path}}

    def adapt(spec: Object) -> Object:
        return {"hostname": f"{job}-{index}", **with_env(spec, [variable])}

    return adapt


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def intervals(numbers: set[int]) -> str:
    """``1,3-5`` for 1, 3, 4 and 5."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}{',' if b == a + 1 else '-'}{b}" for a, b in spans)


def _condition(status: Object, type_: str) -> bool:
    found = status.get("conditions") or ()
    return any(c["type"] == type_ and c["status"] == "True" for c in found)


def _with_condition(
    status: Object, type_: str, value: str, reason: str, message: str
) -> list[Object]:
    conditions = [c for c in status.get("conditions") or () if c["type"] != type_]
    old = next((c for c in status.get("conditions") or () if c["type"] == type_), None)
    if old and old["status"] == value:
        return list(status["conditions"])
    condition = {"type": type_, "status": value, "reason": reason, "message": message}
    return [*conditions, {**condition, "lastTransitionTime": now()}]


def _key(job: Object) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]
