"""The calls that leave the process: submit, look, end, remove, and waiting for changes."""

import copy
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, JobStartError, TorchXError, UnsupportedRequest
from torchx.schedulers._kube.calls import EVENTS, JOBS, PODS, SERVICES, WORKLOADS, Selection
from torchx.schedulers._kube.client import MARK, KubeClient, Listed
from torchx.schedulers._kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from torchx.schedulers.api import AppState
from torchx.schedulers.ids import random_id

from ._reasons import explanation, parse_ns, waiting_reason
from ._request import (
    ANNOTATION_ENDED,
    LABEL_ORGANIZATION,
    LABEL_UNIQUE_NAME,
    MANAGED_BY,
    KubernetesJob,
)
from ._states import App, condition, is_over, parse_app, pod_state, queue_of

OURS = f"{LABEL_ORGANIZATION}={MANAGED_BY}"
_JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
_NEWS_AFTER_S = 2.0
"""How old something that does not start is before its events are asked for."""

logger = get_logger(__name__)


@dataclass(frozen=True)
class Looked:
    """One look at an app: what the lists gave, from which a watch goes on."""

    app: App
    jobs: Listed
    pods: Listed


def selections(namespace: str, name: str) -> tuple[Selection, Selection]:
    """The Jobs and the Pods of an app."""
    labels = f"{OURS},{LABEL_UNIQUE_NAME}={name}"
    return Selection(JOBS, namespace, labels), Selection(PODS, namespace, labels)


# -- submitting ----------------------------------------------------------------------------------


def submit(kube: KubeClient, job: KubernetesJob) -> None:
    """Makes all objects and lets them start; leaves nothing behind if that fails.

    Raises:
        JobStartError: if another app has the name.
        TorchXError: whatever the cluster says.
    """
    mark = random_id()
    begun: list[str] = []
    try:
        with _translated(job):
            owners = [_create_job(kube, job, body, mark, begun) for body in job.jobs]
            if job.service is not None:
                service = _marked(job.service, mark)
                service["metadata"]["ownerReferences"] = owners
                kube.create(SERVICES, job.namespace, service)
            _release(kube, job)
    except BaseException:
        _take_back(kube, job, begun)
        raise


def _create_job(
    kube: KubeClient, job: KubernetesJob, body: dict[str, Any], mark: str, begun: list[str]
) -> dict[str, Any]:
    """Makes one Job; gives the reference by which it owns other objects."""
    name = body["metadata"]["name"]
    begun.append(name)
    try:
        made = kube.create(JOBS, job.namespace, _marked(body, mark))
    except AlreadyExists:
        begun.remove(name)  # it is somebody else's
        raise
    for key in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if key in body["spec"] and key not in made["spec"]:
            msg = (
                f"the cluster does not know the field `{key}` of Jobs: retries, `min_replicas` and"
                " `on_failure=wait` need Kubernetes 1.29 or later"
            )
            raise UnsupportedRequest(msg)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": made["metadata"]["uid"],
    }


def _marked(body: dict[str, Any], mark: str) -> dict[str, Any]:
    """A copy of an object by which we know it as made by this submission."""
    marked = copy.copy(body)
    annotations = {**(body["metadata"].get("annotations") or {}), MARK: mark}
    marked["metadata"] = {**body["metadata"], "annotations": annotations}
    return marked


def _release(kube: KubeClient, job: KubernetesJob) -> None:
    """Lets the Jobs start, once all objects are there; those in a queue are left to that."""
    if any("kueue.x-k8s.io/queue-name" in body["metadata"]["labels"] for body in job.jobs):
        return
    for body in job.jobs:
        if body["spec"].get("suspend"):
            kube.patch(JOBS, job.namespace, body["metadata"]["name"], {"spec": {"suspend": False}})


def _take_back(kube: KubeClient, job: KubernetesJob, names: Iterable[str]) -> None:
    for name in names:
        try:
            kube.delete(JOBS, job.namespace, name)
        except TorchXError as err:
            logger.warning(
                "Job `%s` could not be taken back, remove it with `torchx delete kubernetes:///%s`:"
                " %s",
                name,
                job.app_id,
                err,
            )
            return


@contextmanager
def _translated(job: KubernetesJob) -> Iterator[None]:
    try:
        yield
    except AlreadyExists as err:
        msg = f"{err}; there is an app `{job.app_id}` already, submit again for another name"
        raise _NameTaken(msg) from None


class _NameTaken(JobStartError, InvalidInput):
    """Another app has this name."""


def validate(kube: KubeClient, job: KubernetesJob) -> None:
    """Lets the server check all objects.

    Raises:
        InvalidInput: with the server's words.
        BackendUnavailable: if it cannot be reached.
    """
    for body in job.objects:
        kind = SERVICES if body is job.service else JOBS
        try:
            kube.validate(kind, job.namespace, body)
        except InvalidInput as err:
            raise InvalidInput(f"Invalid job spec: {err}") from None


# -- looking -------------------------------------------------------------------------------------


def look(kube: KubeClient, namespace: str, name: str) -> Looked | None:
    """Two questions about one app; ``None`` if there are no Jobs of it."""
    of_jobs, of_pods = selections(namespace, name)
    jobs = kube.list_objects(of_jobs)
    if not jobs.items:
        return None
    pods = kube.list_objects(of_pods)
    app = parse_app(f"{namespace}:{name}", jobs.items, pods.items)
    return None if app is None else Looked(app, jobs, pods)


def explain(kube: KubeClient, app: App) -> dict[str, str]:
    """Why Jobs do not start, where neither they nor their pods say it; by the name of the Job."""
    namespace = app.id.partition(":")[0]
    found: dict[str, str] = {}
    for name, job in app.jobs.items():
        try:
            words = _explanation(kube, namespace, job, app.pods.get(name, ()), queue_of(app))
        except (Forbidden, NotFound) as err:
            logger.debug("why `%s` waits is not known: %s", name, err)
            return found
        if words:
            found[name] = words
            return found  # one tells enough, and costs a question
    return found


def _explanation(kube: KubeClient, namespace: str, job: Any, pods: Any, queue: str) -> str:
    if condition(job, "Suspended") or job["spec"].get("suspend"):
        return _queue_says(kube, namespace, job) if queue else ""
    if is_over(job):
        return ""
    waiting = [pod for pod in pods if pod_state(pod) is AppState.PENDING]
    subject = job if not pods else next((p for p in waiting if not waiting_reason(p)), None)
    if subject is None or _age_s(subject) < _NEWS_AFTER_S:
        return ""
    fields = f"involvedObject.uid={subject['metadata']['uid']}"
    return explanation(kube.list_objects(Selection(EVENTS, namespace, fields=fields)).items)


def _queue_says(kube: KubeClient, namespace: str, job: Any) -> str:
    labels = f"{_JOB_UID_LABEL}={job['metadata']['uid']}"
    for workload in kube.list_objects(Selection(WORKLOADS, namespace, labels)).items:
        for item in (workload.get("status") or {}).get("conditions") or ():
            if item.get("type") in ("QuotaReserved", "Evicted") and item.get("message"):
                if item["type"] == "QuotaReserved" and item["status"] == "True":
                    continue
                return f"{item.get('reason', '')}: {item['message']}"
    return ""


def _age_s(obj: Any) -> float:
    made_ns = parse_ns(obj["metadata"].get("creationTimestamp"))
    return 0.0 if made_ns is None else time.time() - made_ns / 1e9


def list_jobs(kube: KubeClient, namespace: str) -> list[dict[str, Any]]:
    """All Jobs of TorchX in a namespace."""
    return kube.list_objects(Selection(JOBS, namespace, OURS)).items


def list_pods_of(kube: KubeClient, namespace: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """The pods of some apps, by one question."""
    labels = f"{OURS},{LABEL_UNIQUE_NAME} in ({','.join(names)})"
    return kube.list_objects(Selection(PODS, namespace, labels)).items


# -- ending --------------------------------------------------------------------------------------


def end(kube: KubeClient, app: App, word: str, spared: Iterable[str] = ()) -> None:
    """Ends the Jobs that are not over: they keep their objects, and lose their pods.

    Args:
        word: ``cancelled`` or ``failed``, noted on them.
        spared: Jobs that come to their end by themselves.
    """
    namespace = app.id.partition(":")[0]
    changes = {"metadata": {"annotations": {ANNOTATION_ENDED: word}}, "spec": {"suspend": True}}
    for name, job in app.jobs.items():
        if is_over(job) or name in spared:
            continue
        try:
            if queue_of(app):
                _leave_queue(kube, namespace, job)
            kube.patch(JOBS, namespace, name, changes)
        except NotFound:
            logger.debug("Job `%s` is gone meanwhile", name)


def _leave_queue(kube: KubeClient, namespace: str, job: Any) -> None:
    """Takes a Job out of its queue, which would let it go on otherwise."""
    labels = f"{_JOB_UID_LABEL}={job['metadata']['uid']}"
    for workload in kube.list_objects(Selection(WORKLOADS, namespace, labels)).items:
        name = workload["metadata"]["name"]
        kube.patch(WORKLOADS, namespace, name, {"spec": {"active": False}})


def remove(kube: KubeClient, app: App) -> None:
    """Removes all objects; their pods end and go as well."""
    namespace, _, name = app.id.partition(":")
    for job in app.jobs:
        kube.delete(JOBS, namespace, job)
    if sum(role.replicas for role in app.roles) > 1:
        kube.delete(SERVICES, namespace, name)


# -- waiting -------------------------------------------------------------------------------------


class Watches:
    """The watches of the apps that somebody waits for; each is opened once."""

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}

    def wait(self, kube: KubeClient, app_id: str, looked: Looked, timeout_s: float) -> None:
        """Returns when an object of the app has changed since the look, at the latest in time."""
        from torchx.schedulers._kube.watch import Watch  # loads asyncio, which looks do not need

        watch = self._open.get(app_id)
        if watch is None:
            namespace, _, name = app_id.partition(":")
            of_jobs, of_pods = selections(namespace, name)
            watch = Watch(kube, {of_jobs: looked.jobs, of_pods: looked.pods})
            watch.__enter__()
            self._open[app_id] = watch
        try:
            watch.wait(timeout_s)
        except ApiError as err:
            logger.warning("changes of `%s` are not reported: %s", app_id, err)
            self.close(app_id)
            time.sleep(timeout_s)

    def close(self, app_id: str | None = None) -> None:
        """Closes the watch of an app, all for ``None``."""
        for name in [app_id] if app_id is not None else [*self._open]:
            watch = self._open.pop(name, None)
            if watch is not None:
                watch.__exit__(None, None, None)
