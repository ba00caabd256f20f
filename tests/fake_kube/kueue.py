"""The part of Kueue that users of a queue see: https://kueue.sigs.k8s.io/docs/concepts/workload/."""

import hashlib

from .controllers import Controller, owner_of
from .kinds import JOB_SETS, JOBS, LOCAL_QUEUES, WORKLOADS, Kind
from .store import Change, Object, Store, now

QUEUE = "kueue.x-k8s.io/queue-name"
HOLD = "fake-kube/hold"
"""Annotation of a LocalQueue: nothing is admitted, and this is why."""


class KueueController(Controller):
    """Admits what names a queue that exists and is not held back, and suspends all else."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, WORKLOADS, ())
        store.listeners.append(self._job_changed)

    def _job_changed(self, change: Change) -> None:
        if change.kind in (JOBS, JOB_SETS) and change.type != "DELETED":
            metadata = change.obj["metadata"]
            if QUEUE in (metadata.get("labels") or {}) and not metadata.get("ownerReferences"):
                self._workload(change.kind, change.obj)
        elif change.kind is LOCAL_QUEUES:
            for workload in self.store.all(WORKLOADS, change.obj["metadata"]["namespace"]):
                self._mark((workload["metadata"]["namespace"], workload["metadata"]["name"]))

    def _workload(self, kind: Kind, job: Object) -> None:
        metadata = job["metadata"]
        namespace = metadata["namespace"]
        name = f"{kind.name.lower()}-{metadata['name']}-{_hash(metadata['uid'])}"
        if self.store.find(WORKLOADS, namespace, name) is None:
            labels = {"kueue.x-k8s.io/job-uid": metadata["uid"]}
            owners = owner_of(kind, job)
            meta = {"name": name, "namespace": namespace, "labels": labels}
            spec = {"queueName": metadata["labels"][QUEUE], "active": True}
            self.store.create(
                WORKLOADS, {"metadata": {**meta, "ownerReferences": owners}, "spec": spec}
            )
        self._mark((namespace, name))

    def sync(self, workload: Object) -> None:
        owner = workload["metadata"]["ownerReferences"][0]
        namespace = workload["metadata"]["namespace"]
        kind = JOBS if owner["kind"] == "Job" else JOB_SETS
        job = self.store.find(kind, namespace, owner["name"])
        if job is None:
            self.store.remove(WORKLOADS, namespace, workload["metadata"]["name"])
            return
        queue = self.store.find(LOCAL_QUEUES, namespace, workload["spec"]["queueName"])
        why_not = self._why_not(workload, queue)
        conditions = [_condition("QuotaReserved", not why_not[0], *why_not)]
        conditions.append(_condition("Admitted", not why_not[0], *why_not))
        if not workload["spec"].get("active", True):
            conditions.append(
                _condition("Evicted", True, "Deactivated", "The workload is deactivated")
            )
        if _finished(job):
            conditions.append(_condition("Finished", True, "Succeeded", "Job finished"))
        old = (workload.get("status") or {}).get("conditions") or []
        if [_bare(c) for c in old] != [_bare(c) for c in conditions]:
            self.store.change(WORKLOADS, workload, status={"conditions": conditions})
        if not _finished(job) and bool(job["spec"].get("suspend")) != bool(why_not[0]):
            self.store.change(kind, job, spec={**job["spec"], "suspend": bool(why_not[0])})

    def _why_not(self, workload: Object, queue: Object | None) -> tuple[str, str]:
        """Reason and message; both empty if it is admitted."""
        if not workload["spec"].get("active", True):
            return "Deactivated", "The workload is deactivated"
        if queue is None:
            name = workload["spec"]["queueName"]
            return "Inadmissible", f"LocalQueue {name} doesn't exist"
        held = (queue["metadata"].get("annotations") or {}).get(HOLD)
        return ("Pending", held) if held else ("", "")


def _condition(type_: str, value: bool, reason: str, message: str) -> Object:
    return {
        "type": type_,
        "status": str(value),
        "reason": reason or type_,
        "message": message,
        "lastTransitionTime": now(),
    }


def _bare(condition: Object) -> Object:
    return {k: v for k, v in condition.items() if k != "lastTransitionTime"}


def _finished(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    ends = ("Complete", "Failed", "Completed")
    return any(c["type"] in ends and c["status"] == "True" for c in conditions)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:5]
