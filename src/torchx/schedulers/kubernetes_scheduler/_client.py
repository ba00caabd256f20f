"""The calls about apps that are there: look, list, end, remove."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.schedulers._kube.apps.app import (
    App,
    Object,
    ended_mark,
    group_jobs,
    parse_app,
    queue_of,
)
from torchx.schedulers._kube.apps.labels import (
    ANNOTATION_ENDED,
    LABEL_UNIQUE_NAME,
)
from torchx.schedulers._kube.apps.look import (
    Looked,
    leave_queue,
    list_ours,
    list_pods_of,
    look_at,
    select,
)
from torchx.schedulers._kube.apps.snapshots import build_snapshot, created_ns
from torchx.schedulers._kube.calls import CONFIG_MAPS, SERVICES, VOLCANO_COMMANDS
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.errors import (
    Forbidden,
    NotFound,
)
from torchx.schedulers.api import AppSnapshot, AppState
from torchx.schedulers.ids import random_id

from ._kinds import KINDS, ObjectKind, kind_of_pods
from ._states import ends_itself, is_over, row_state

_ROWS_WITH_PODS = 50
"""A list reads the pods of up to this many live apps; beyond, the state of the objects is used."""

logger = get_logger(__name__)


# -- looking -------------------------------------------------------------------------------------


def look(
    kube: KubeClient, namespace: str, name: str, known: ObjectKind | None
) -> tuple[Looked, ObjectKind] | None:
    """Queries one app with two requests; ``None`` if it has no objects.

    Args:
        known: the kind of its objects; if unknown, it is found from the pods, or else by querying
            each kind.
    """
    if known is not None:
        looked = look_at(kube, known.kind, namespace, name)
        return None if looked is None else (looked, known)
    pods = kube.list_objects(select(KINDS["job"].kind, namespace, name)[1])
    found = kind_of_pods(pods.items)
    for kind in [found] if found is not None else KINDS.values():
        try:
            looked = look_at(kube, kind.kind, namespace, name, pods)
        except Forbidden:
            if kind is found or kind.api == "job":
                raise
            continue  # without the permission for this kind, there are none
        if looked is not None:
            return looked, kind
    return None


def list_apps(
    kube: KubeClient, namespace: str, kinds: Sequence[ObjectKind]
) -> list[tuple[ObjectKind, AppSnapshot]]:
    """Returns all apps of TorchX in a namespace, latest first."""
    found: list[tuple[str, ObjectKind, App]] = []
    for kind in kinds:
        try:
            jobs = list_ours(kube, kind.kind, namespace)
        except Forbidden as err:
            if kind.api == "job":
                raise
            logger.debug("apps of `job_api=%s` are not listed: %s", kind.api, err)
            continue
        for app_id, own in group_jobs(jobs).items():
            app = parse_app(app_id, own, ())
            if app is not None:
                made = str(own[0]["metadata"].get("creationTimestamp"))
                found.append((made, kind, app))
    found.sort(key=lambda row: row[0], reverse=True)
    live = _look_at_pods(kube, namespace, [(kind, app) for _, kind, app in found])
    return [
        (
            kind,
            live.get(app.id)
            or AppSnapshot(
                app.id,
                name=app.name,
                native_state=row_state(app, kind.api),
                created_ns=created_ns(app),
            ),
        )
        for _, kind, app in found
    ]


def _look_at_pods(
    kube: KubeClient, namespace: str, apps: Sequence[tuple[ObjectKind, App]]
) -> dict[str, AppSnapshot]:
    """Returns the live apps with their pods, with one request, if there are not too many."""
    active = (AppState.PENDING, AppState.RUNNING)
    live = [(kind, app) for kind, app in apps if row_state(app, kind.api) in active]
    if not 0 < len(live) <= _ROWS_WITH_PODS:
        return {}
    pods = list_pods_of(kube, namespace, [app.id.partition(":")[2] for _, app in live])
    by_app: dict[str, list[Object]] = {}
    for pod in pods:
        labels: Mapping[str, str] = pod["metadata"]["labels"]
        by_app.setdefault(labels[LABEL_UNIQUE_NAME], []).append(pod)
    found = {}
    for kind, app in live:
        own = parse_app(app.id, app.jobs.values(), by_app.get(app.id.partition(":")[2], ()))
        found[app.id] = build_snapshot(own or app, kind.reader)
    return found


def pod_group(job: Object) -> str:
    """Returns the name of the group in which Volcano places the pods of a Job."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


# -- ending --------------------------------------------------------------------------------------


def end(
    kube: KubeClient, app: App, kind: ObjectKind, word: str, spared: Iterable[str] = ()
) -> None:
    """Ends the live objects: they are kept, their pods are deleted.

    Args:
        word: ``cancelled`` or ``failed``, recorded on them.
        spared: objects that end by themselves.
    """
    namespace = app.id.partition(":")[0]
    changes: dict[str, Any] = {"metadata": {"annotations": {ANNOTATION_ENDED: word}}}
    if kind.suspends:
        changes["spec"] = {"suspend": True}
    for name, job in app.jobs.items():
        if is_over(job) or name in spared:
            continue
        if word == "failed" and (ends_itself(job) or ended_mark(job)):
            continue
        try:
            if kind.suspends and queue_of(app):
                leave_queue(kube, namespace, job)
            kube.patch(kind.kind, namespace, name, changes)
            if not kind.suspends:
                kube.create(VOLCANO_COMMANDS, namespace, _command(job, word))
        except NotFound:
            logger.debug("%s `%s` is gone meanwhile", kind.kind.name, name)


def _command(job: Object, word: str) -> dict[str, Any]:
    """Tells Volcano to end a Job."""
    name = job["metadata"]["name"]
    target = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": VOLCANO_COMMANDS.api_version,
        "kind": "Command",
        "metadata": {"name": f"{name}-{random_id(8)}", "ownerReferences": [target]},
        "action": "AbortJob" if word == "cancelled" else "TerminateJob",
        "target": target,
        "reason": "torchx",
    }


def remove(kube: KubeClient, app: App, kind: ObjectKind) -> None:
    """Removes all objects; their pods are ended and removed as well."""
    namespace, _, name = app.id.partition(":")
    for job in app.jobs:
        kube.delete(kind.kind, namespace, job)
    if kind.api == "job" and sum(role.replicas for role in app.roles) > 1:
        kube.delete(SERVICES, namespace, name)
    if kind.api == "job" and len(app.roles) > 1:
        kube.delete(CONFIG_MAPS, namespace, name)
