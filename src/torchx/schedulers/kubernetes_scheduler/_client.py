"""The calls that leave the process: submit, look, list, end, remove."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, JobStartError, TorchXError, UnsupportedRequest
from torchx.schedulers._core.interrupting import sigterm_raises
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
    LABEL_QUEUE,
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
from torchx.schedulers._kube.apps.size import check_size
from torchx.schedulers._kube.apps.snapshots import build_snapshot, created_ns
from torchx.schedulers._kube.calls import CONFIG_MAPS, SERVICES, VOLCANO_COMMANDS, Kind
from torchx.schedulers._kube.client import MARK, KubeClient
from torchx.schedulers._kube.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    MissingKind,
    NotFound,
    NotSent,
    ServerBusy,
    Untrusted,
)
from torchx.schedulers.api import AppSnapshot, AppState
from torchx.schedulers.ids import random_id

from ._kinds import GROUPS, KINDS, ObjectKind, kind_of_pods
from ._request import KubernetesJob
from ._states import ends_itself, is_over, row_state

_ROWS_WITH_PODS = 50
"""Of so many live apps a list looks at the pods; of more, the words of the objects do."""

logger = get_logger(__name__)


# -- submitting ----------------------------------------------------------------------------------


def submit(kube: KubeClient, job: KubernetesJob) -> None:
    """Makes all objects and lets them start; leaves nothing behind if that fails.

    Nothing runs before all of them are there, wherever this process is killed: a single Job is let
    go by one request, and of several none runs before the gate is there, which comes last.

    Raises:
        JobStartError: if another app has the name.
        TorchXError: whatever the cluster says.
    """
    mark = random_id()
    begun: dict[str, bool] = {}
    _check_size(job)
    with sigterm_raises():
        try:
            _create_all(kube, job, mark, begun)
        except BaseException:
            _take_back(kube, job, begun)
            raise


def _create_all(kube: KubeClient, job: KubernetesJob, mark: str, begun: dict[str, bool]) -> None:
    with _translated(job):
        owners = [_create_job(kube, job, body, mark, begun) for body in job.jobs]
        _create_owned(kube, SERVICES, job.service, mark, owners)
        _release(kube, job)
        _create_owned(kube, CONFIG_MAPS, job.gate, mark, owners)


def _create_job(
    kube: KubeClient, job: KubernetesJob, body: dict[str, Any], mark: str, begun: dict[str, bool]
) -> dict[str, Any]:
    """Makes one Job; gives the reference by which it owns other objects.

    Args:
        begun: notes the name, and whether it was made for certain.
    """
    name = body["metadata"]["name"]
    begun[name] = False
    try:
        body = _marked(_unqueued(body, job), mark)
        made = kube.create(KINDS[job.api].kind, job.namespace, body)
    except (ApiError, NotSent, Untrusted) as err:
        if not isinstance(err, ServerBusy):
            del begun[name]  # it was not made; one that exists is somebody else's
        if isinstance(err, MissingKind):
            raise _no_operator(kube, job.api, err) from None
        raise
    begun[name] = True
    for key in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if key in body["spec"] and key not in made["spec"]:
            msg = (
                f"the cluster does not know the field `{key}` of Jobs: retries, `min_replicas` and"
                " `on_failure=wait` need Kubernetes 1.29 or later"
            )
            raise UnsupportedRequest(msg)
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": name,
        "uid": made["metadata"]["uid"],
    }


def _create_owned(
    kube: KubeClient,
    kind: Kind,
    body: dict[str, Any] | None,
    mark: str,
    owners: list[dict[str, Any]],
) -> None:
    """Makes an object that goes when the last of the Jobs is gone; ``None`` for none."""
    if body is not None:
        owned = _marked(body, mark)
        owned["metadata"]["ownerReferences"] = owners
        kube.create(kind, body["metadata"]["namespace"], owned)


def _unqueued(body: dict[str, Any], job: KubernetesJob) -> dict[str, Any]:
    """A Job as it is made: its queue would let it go before the other objects are there."""
    labels = body["metadata"]["labels"]
    if LABEL_QUEUE not in labels or len(job.objects) == 1:
        return body
    kept = {name: value for name, value in labels.items() if name != LABEL_QUEUE}
    return {**body, "metadata": {**body["metadata"], "labels": kept}}


def _no_operator(kube: KubeClient, api: str, err: MissingKind) -> MissingKind:
    """Names the kinds of objects that the cluster does have."""
    try:
        groups = kube.groups()
    except TorchXError:
        return err
    known = [name for name, group in GROUPS.items() if group in groups]
    msg = (
        f"the cluster has no {KINDS[api].kind.plural}.{GROUPS[api]} for `job_api={api}`, "
        f"it can run: {', '.join(f'`job_api={name}`' for name in known)}"
    )
    return MissingKind(msg, err.code, err.status)


def _check_size(job: KubernetesJob) -> None:
    advice = "`job_api=job` or `job_api=jobset`"
    for body in job.jobs:
        check_size(body, body["spec"].get("tasks") or (), "object of Volcano", advice)


def _marked(body: dict[str, Any], mark: str) -> dict[str, Any]:
    """A copy of an object by which we know it as made by this submission."""
    marked = copy.copy(body)
    annotations = {**(body["metadata"].get("annotations") or {}), MARK: mark}
    marked["metadata"] = {**body["metadata"], "annotations": annotations}
    return marked


def _release(kube: KubeClient, job: KubernetesJob) -> None:
    """Lets the Jobs start, or puts them into their queue, which does so."""
    if len(job.objects) == 1:
        return  # it was made like that
    for body in job.jobs:
        queue = body["metadata"]["labels"].get(LABEL_QUEUE)
        changes: dict[str, Any] = {"spec": {"suspend": False}}
        if queue:
            changes = {"metadata": {"labels": {LABEL_QUEUE: queue}}}
        kube.patch(KINDS[job.api].kind, job.namespace, body["metadata"]["name"], changes)


def _take_back(kube: KubeClient, job: KubernetesJob, begun: Mapping[str, bool]) -> None:
    for name, made in begun.items():
        try:
            (kube.delete if made else kube.withdraw)(KINDS[job.api].kind, job.namespace, name)
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


_BESIDE = {kind.name: kind for kind in (SERVICES, CONFIG_MAPS)}
"""Kinds of objects beside the main ones."""


def validate(kube: KubeClient, job: KubernetesJob) -> None:
    """Lets the server check all objects.

    Raises:
        InvalidInput: with the server's words, or for more replicas than it keeps in one object.
        BackendUnavailable: if it cannot be reached.
    """
    _check_size(job)
    for body in job.objects:
        kind = _BESIDE.get(body["kind"], KINDS[job.api].kind)
        try:
            kube.validate(kind, job.namespace, body)
        except MissingKind as err:
            raise _no_operator(kube, job.api, err) from None
        except InvalidInput as err:
            raise InvalidInput(f"Invalid job spec: {err}") from None


# -- looking -------------------------------------------------------------------------------------


def look(
    kube: KubeClient, namespace: str, name: str, known: ObjectKind | None
) -> tuple[Looked, ObjectKind] | None:
    """Two questions about one app; ``None`` if there are no objects of it.

    Args:
        known: what it is made of; without, its pods tell, and each kind is asked for if there are
            none.
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
            continue  # who may not look at this kind has none of it
        if looked is not None:
            return looked, kind
    return None


def list_apps(
    kube: KubeClient, namespace: str, kinds: Sequence[ObjectKind]
) -> list[tuple[ObjectKind, AppSnapshot]]:
    """All apps of TorchX in a namespace, the latest first."""
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
    """The apps that have not ended, by one question, if there are not too many."""
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
    """Name of the group in which Volcano places the pods of a Job."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


# -- ending --------------------------------------------------------------------------------------


def end(
    kube: KubeClient, app: App, kind: ObjectKind, word: str, spared: Iterable[str] = ()
) -> None:
    """Ends the objects that are not over: they stay, and lose their pods.

    Args:
        word: ``cancelled`` or ``failed``, noted on them.
        spared: objects that come to their end by themselves.
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
    """Removes all objects; their pods end and go as well."""
    namespace, _, name = app.id.partition(":")
    for job in app.jobs:
        kube.delete(kind.kind, namespace, job)
    if kind.api == "job" and sum(role.replicas for role in app.roles) > 1:
        kube.delete(SERVICES, namespace, name)
    if kind.api == "job" and len(app.roles) > 1:
        kube.delete(CONFIG_MAPS, namespace, name)
