"""The controller of JobSets: https://jobset.sigs.k8s.io/docs/concepts/."""

from collections.abc import Callable
from typing import Any

from .controllers import Controller, owner_of
from .kinds import JOB_SETS, JOBS, SERVICES
from .store import Object, Store, now

_PREFIX = "jobset.sigs.k8s.io"
_ATTEMPT = f"{_PREFIX}/restart-attempt"


class JobSetController(Controller):
    """Makes the Jobs of JobSets; when one fails, all begin again or all end."""

    def __init__(self, store: Store, remove: Callable[..., None]) -> None:
        super().__init__(store, JOB_SETS, (JOBS,))
        self._remove = remove

    def sync(self, job_set: Object) -> None:
        status = dict(job_set.get("status") or {})
        spec = job_set["spec"]
        if status.get("terminalState"):
            return
        restarts = status.get("restarts", 0)
        jobs = self.store.owned(job_set["metadata"]["uid"], JOBS)
        old = [job for job in jobs if _attempt(job) < restarts]
        if old:
            for job in old:
                self._remove(JOBS, job)
            return  # their end wakes this up again
        self._service(job_set)
        suspend = bool(spec.get("suspend"))
        jobs = [self._job(job_set, *place, restarts, suspend) for place in _places(spec)]
        failed = [job for job in jobs if _ended(job) == "Failed"]
        if failed and restarts < _max_restarts(spec, failed):
            status["restarts"] = restarts + 1
        elif failed:
            self._end(status, "Failed", "FailedJobs", f"jobset failed due to {_name(failed[0])}")
            for job in jobs:
                if not _ended(job):
                    self._remove(JOBS, job)
        elif all(_ended(job) == "Complete" for job in jobs):
            message = "jobset completed successfully"
            self._end(status, "Completed", "AllJobsCompleted", message)
        self._note_suspension(status, suspend)
        status["replicatedJobsStatus"] = [
            _counts(replicated["name"], jobs) for replicated in spec["replicatedJobs"]
        ]
        self.store.change(JOB_SETS, job_set, status=status)

    def _end(self, status: Object, state: str, reason: str, message: str) -> None:
        status["terminalState"] = state
        condition = {"type": state, "status": "True", "reason": reason, "message": message}
        others = status.get("conditions") or []
        status["conditions"] = [*others, {**condition, "lastTransitionTime": now()}]

    def _note_suspension(self, status: Object, suspend: bool) -> None:
        others = [c for c in status.get("conditions") or [] if c["type"] != "Suspended"]
        known = len(others) < len(status.get("conditions") or [])
        if suspend or known:
            reason = "SuspendedJobs" if suspend else "ResumeJobs"
            condition = {"type": "Suspended", "status": str(suspend), "reason": reason}
            status["conditions"] = [*others, {**condition, "message": "", "lastTransitionTime": ""}]

    def _service(self, job_set: Object) -> None:
        metadata = job_set["metadata"]
        network = job_set["spec"].get("network") or {}
        name = network.get("subdomain") or metadata["name"]
        there = self.store.find(SERVICES, metadata["namespace"], name)
        if there is not None or not network.get("enableDNSHostnames", True):
            return
        selector = {f"{_PREFIX}/jobset-name": metadata["name"]}
        spec = {"clusterIP": "None", "selector": selector}
        spec["publishNotReadyAddresses"] = network.get("publishNotReadyAddresses", True)
        meta = {"name": name, "namespace": metadata["namespace"]}
        meta["ownerReferences"] = owner_of(JOB_SETS, job_set)
        self.store.create(SERVICES, {"metadata": meta, "spec": spec})

    def _job(
        self, job_set: Object, replicated: Object, index: int, restarts: int, suspend: bool
    ) -> Object:
        """One Job of the set, made if it is not there."""
        metadata = job_set["metadata"]
        name = f"{metadata['name']}-{replicated['name']}-{index}"
        job = self.store.find(JOBS, metadata["namespace"], name)
        if job is not None:
            if bool(job["spec"].get("suspend")) != suspend:
                job = self.store.change(JOBS, job, spec={**job["spec"], "suspend": suspend})
            return job
        labels = {
            f"{_PREFIX}/jobset-name": metadata["name"],
            f"{_PREFIX}/replicatedjob-name": replicated["name"],
            f"{_PREFIX}/replicatedjob-replicas": str(replicated.get("replicas", 1)),
            f"{_PREFIX}/job-index": str(index),
            _ATTEMPT: str(restarts),
        }
        subdomain = (job_set["spec"].get("network") or {}).get("subdomain") or metadata["name"]
        spec = _job_spec(replicated["template"]["spec"], labels, subdomain)
        meta: dict[str, Any] = {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {
                **(replicated["template"].get("metadata") or {}).get("labels", {}),
                **labels,
            },
            "ownerReferences": owner_of(JOB_SETS, job_set),
        }
        return self.store.create(JOBS, {"metadata": meta, "spec": {**spec, "suspend": suspend}})


def _job_spec(spec: Object, labels: dict[str, str], subdomain: str) -> Object:
    template = spec["template"]
    meta = template.get("metadata") or {}
    pod = {"subdomain": subdomain, **template["spec"]}
    pod.setdefault("restartPolicy", "OnFailure")
    meta = {**meta, "labels": {**(meta.get("labels") or {}), **labels}}
    defaults = {"completionMode": "Indexed", "parallelism": 1, "completions": 1, "backoffLimit": 6}
    return {**defaults, **spec, "template": {"metadata": meta, "spec": pod}}


def _max_restarts(spec: Object, failed: list[Object]) -> int:
    """How often the set may start again after the failure of these Jobs."""
    policy = spec.get("failurePolicy") or {}
    roles = {job["metadata"]["labels"][f"{_PREFIX}/replicatedjob-name"] for job in failed}
    for rule in policy.get("rules") or ():
        targets = rule.get("targetReplicatedJobs")
        if rule["action"] == "FailJobSet" and (not targets or roles & {*targets}):
            return 0
    return int(policy.get("maxRestarts", 0))


def _places(spec: Object) -> list[tuple[Object, int]]:
    jobs = spec["replicatedJobs"]
    return [(replicated, i) for replicated in jobs for i in range(replicated.get("replicas", 1))]


def _attempt(job: Object) -> int:
    return int(job["metadata"]["labels"][_ATTEMPT])


def _name(job: Object) -> str:
    return str(job["metadata"]["name"])


def _ended(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    ends = [c["type"] for c in conditions if c["status"] == "True"]
    return next((end for end in ("Failed", "Complete") if end in ends), "")


def _counts(name: str, jobs: list[Object]) -> Object:
    mine = [j for j in jobs if j["metadata"]["labels"][f"{_PREFIX}/replicatedjob-name"] == name]
    statuses = [job.get("status") or {} for job in mine]
    return {
        "name": name,
        "ready": sum(s.get("ready", 0) >= 1 for s in statuses),
        "active": sum(s.get("active", 0) >= 1 for s in statuses),
        "succeeded": sum(_ended(job) == "Complete" for job in mine),
        "failed": sum(_ended(job) == "Failed" for job in mine),
        "suspended": sum(bool(job["spec"].get("suspend")) for job in mine),
    }
