"""Queries the cluster for the objects of an app, and why they do not start."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchx._startup.lazy_logger import get_logger
from torchx.schedulers._kube.calls import CONFIG_MAPS, EVENTS, PODS, WORKLOADS, Kind, Selection
from torchx.schedulers._kube.client import KubeClient, Listed
from torchx.schedulers._kube.errors import Forbidden, MissingKind, NotFound
from torchx.schedulers.api import AppState

from .app import App, Object, condition, parse_app, queue_of
from .gate import GATE_VOLUME
from .labels import OURS, of_app, of_apps
from .reasons import explanation, parse_ns, waiting_reason
from .snapshots import half_submitted_message, pod_state, replica_of

_JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
_NEWS_AFTER_S = 2.0
"""Age of an object that does not start before its events are requested."""

logger = get_logger(__name__)


@dataclass(frozen=True)
class Looked:
    """The result of one query of an app: lists, from which a watch can continue."""

    app: App
    kind: Kind
    """The list of its main objects."""
    lists: Mapping[Selection, Listed]


def select(kind: Kind, namespace: str, name: str) -> tuple[Selection, Selection]:
    """Returns the selections of an app's main objects and Pods."""
    labels = of_app(name)
    return Selection(kind, namespace, labels), Selection(PODS, namespace, labels)


def look_at(
    kube: KubeClient, kind: Kind, namespace: str, name: str, pods: Listed | None = None
) -> Looked | None:
    """Queries one app with two requests; ``None`` if it has no objects of this kind.

    Args:
        pods: pods of the app, if they were just requested.
    """
    of_jobs, of_pods = select(kind, namespace, name)
    try:
        jobs = kube.list_objects(of_jobs)
    except MissingKind:
        return None
    if not jobs.items:
        return None
    pods = pods or kube.list_objects(of_pods)
    app = parse_app(f"{namespace}:{name}", jobs.items, pods.items)
    return None if app is None else Looked(app, kind, {of_jobs: jobs, of_pods: pods})


def list_ours(kube: KubeClient, kind: Kind, namespace: str) -> list[Object]:
    """Returns TorchX's objects of one kind in a namespace; none if the kind is not installed."""
    try:
        return [*kube.list_objects(Selection(kind, namespace, OURS)).items]
    except MissingKind:
        return []


def list_pods_of(kube: KubeClient, namespace: str, names: Iterable[str]) -> list[Object]:
    """Returns the pods of some apps, with one request."""
    return [*kube.list_objects(Selection(PODS, namespace, of_apps(names))).items]


# -- why it waits --------------------------------------------------------------------------------


def explain(
    kube: KubeClient,
    app: App,
    is_over: Callable[[Object], bool],
    group_of: Callable[[Object], str] | None = None,
) -> dict[str, str]:
    """Returns, by name, why objects do not start if neither they nor their pods report it.

    Args:
        group_of: returns the name of the PodGroup with the events of an object without pods.
    """
    found: dict[str, str] = {}
    for name, job in app.jobs.items():
        if is_over(job):
            continue
        try:
            words = _explanation(kube, app, job, group_of)
        except (Forbidden, NotFound) as err:
            logger.debug("the reason why `%s` waits is not known: %s", name, err)
            return found
        if words:
            found[name] = words
            return found  # one is enough, and each costs a request
    return found


def _explanation(
    kube: KubeClient, app: App, job: Object, group_of: Callable[[Object], str] | None
) -> str:
    namespace = app.id.partition(":")[0]
    if condition(job, "Suspended") or job["spec"].get("suspend"):
        return queue_says(kube, namespace, job) if queue_of(app) else ""
    for field in _subjects(app, job, group_of):
        words = explanation(kube.list_objects(Selection(EVENTS, namespace, fields=field)).items)
        if f'"{GATE_VOLUME}"' in words:
            words = _gate_says(kube, app)
        if words:
            return words
    return ""


def _subjects(app: App, job: Object, group_of: Callable[[Object], str] | None) -> Iterator[str]:
    """Yields selectors of events about objects that do not start, if old enough."""
    roles = [role for role in app.roles if role.job == job["metadata"]["name"]]
    pods = [pod for role in roles for pod in app.pods.get(role.name, ())]
    waiting = (p for p in pods if pod_state(p) is AppState.PENDING and not waiting_reason(p))
    pod = next(waiting, None)
    if pod is not None and _age_s(pod) >= _NEWS_AFTER_S:
        yield f"involvedObject.uid={pod['metadata']['uid']}"
    made = sum(len({*map(replica_of, app.pods.get(role.name, ()))}) for role in roles)
    if made >= sum(role.replicas for role in roles) or _age_s(job) < _NEWS_AFTER_S:
        return
    if group_of is not None:
        yield f"involvedObject.kind=PodGroup,involvedObject.name={group_of(job)}"
    yield f"involvedObject.uid={job['metadata']['uid']}"


def _gate_says(kube: KubeClient, app: App) -> str:
    """Distinguishes a killed launcher from one that was just slower than the node."""
    namespace, _, name = app.id.partition(":")
    try:
        kube.get(CONFIG_MAPS, namespace, name)
    except NotFound:
        return half_submitted_message(app, "Jobs")
    return ""


def queue_says(kube: KubeClient, namespace: str, job: Object) -> str:
    """Returns why Kueue does not admit an object."""
    for workload in _workloads(kube, namespace, job):
        for item in (workload.get("status") or {}).get("conditions") or ():
            # one that is false tells what was before
            tells = _TELLING.get(item.get("type", "")) == item.get("status")
            if tells and item.get("message"):
                return f"{item.get('reason', '')}: {item['message']}"
    return ""


_TELLING = {"QuotaReserved": "False", "Evicted": "True"}
"""Conditions of workloads that say why they wait, and the status in which they do."""


def leave_queue(kube: KubeClient, namespace: str, job: Object) -> None:
    """Removes an object from its queue, which would otherwise start it."""
    for workload in _workloads(kube, namespace, job):
        name = workload["metadata"]["name"]
        kube.patch(WORKLOADS, namespace, name, {"spec": {"active": False}})


def _workloads(kube: KubeClient, namespace: str, job: Object) -> Sequence[Object]:
    labels = f"{_JOB_UID_LABEL}={job['metadata']['uid']}"
    return kube.list_objects(Selection(WORKLOADS, namespace, labels)).items


def _age_s(obj: Object) -> float:
    made_ns = parse_ns(obj["metadata"].get("creationTimestamp"))
    return 0.0 if made_ns is None else time.time() - made_ns / 1e9
