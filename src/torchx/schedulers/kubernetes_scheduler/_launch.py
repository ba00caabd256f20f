"""Starts all objects of an app, or none; asks the cluster whether it would take them."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, JobStartError, TorchXError, UnsupportedRequest
from torchx.schedulers._core.interrupting import sigterm_raises
from torchx.schedulers._kube.apps.labels import LABEL_QUEUE
from torchx.schedulers._kube.apps.size import check_size
from torchx.schedulers._kube.calls import CONFIG_MAPS, SERVICES, Kind
from torchx.schedulers._kube.client import MARK, KubeClient
from torchx.schedulers._kube.errors import (
    AlreadyExists,
    ApiError,
    ConfigError,
    MissingKind,
    NotSent,
    ServerBusy,
    Untrusted,
)
from torchx.schedulers.ids import random_id

from ._kinds import GROUPS, KINDS
from ._request import KubernetesJob

_BESIDE = {kind.name: kind for kind in (SERVICES, CONFIG_MAPS)}
"""Kinds of objects other than the main ones."""

logger = get_logger(__name__)


def submit(kube: KubeClient, job: KubernetesJob) -> None:
    """Creates all objects and starts them; rolls back on failure.

    Nothing runs before all of them exist, wherever this process is killed: a single Job is released
    by one request, and several Jobs wait for the gate, which is created last.

    Raises:
        JobStartError: if another app has the name.
        TorchXError: any error of the cluster.
    """
    mark = random_id()
    begun: dict[str, bool] = {}
    _check_size(job)
    with sigterm_raises():
        try:
            _create_all(kube, job, mark, begun)
        except BaseException:
            _undo_submission(kube, job, begun)
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
    """Creates one Job; returns the reference by which it owns other objects.

    Args:
        begun: receives the name, and whether it was certainly created.
    """
    name = body["metadata"]["name"]
    begun[name] = False
    try:
        body = _marked(_unqueued(body, job), mark)
        made = kube.create(KINDS[job.api].kind, job.namespace, body)
    except (ApiError, ConfigError, NotSent, Untrusted) as err:
        if not isinstance(err, ServerBusy):
            del begun[name]  # it was not created; an existing one belongs to somebody else
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
    """Creates an object that is deleted with the last of the Jobs; does nothing for ``None``."""
    if body is not None:
        owned = _marked(body, mark)
        owned["metadata"]["ownerReferences"] = owners
        kube.create(kind, body["metadata"]["namespace"], owned)


def _unqueued(body: dict[str, Any], job: KubernetesJob) -> dict[str, Any]:
    """Returns a Job without its queue, which would start it before the other objects exist."""
    labels = body["metadata"]["labels"]
    if LABEL_QUEUE not in labels or len(job.objects) == 1:
        return body
    kept = {name: value for name, value in labels.items() if name != LABEL_QUEUE}
    return {**body, "metadata": {**body["metadata"], "labels": kept}}


def _no_operator(kube: KubeClient, api: str, err: MissingKind) -> MissingKind:
    """Returns the error for a missing kind, which lists the available ones."""
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
    """Returns a copy of an object with the mark of this submission."""
    marked = copy.copy(body)
    annotations = {**(body["metadata"].get("annotations") or {}), MARK: mark}
    marked["metadata"] = {**body["metadata"], "annotations": annotations}
    return marked


def _release(kube: KubeClient, job: KubernetesJob) -> None:
    """Starts the Jobs, or puts them into their queue, which starts them."""
    if len(job.objects) == 1:
        return  # it was made like that
    for body in job.jobs:
        queue = body["metadata"]["labels"].get(LABEL_QUEUE)
        changes: dict[str, Any] = {"spec": {"suspend": False}}
        if queue:
            changes = {"metadata": {"labels": {LABEL_QUEUE: queue}}}
        kube.patch(KINDS[job.api].kind, job.namespace, body["metadata"]["name"], changes)


def _undo_submission(kube: KubeClient, job: KubernetesJob, begun: Mapping[str, bool]) -> None:
    for name, made in begun.items():
        try:
            (kube.delete if made else kube.withdraw)(KINDS[job.api].kind, job.namespace, name)
        except TorchXError as err:
            logger.warning(
                "Job `%s` could not be rolled back, remove it with `torchx delete kubernetes:///%s`:"
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
        except ConfigError:
            raise  # it does not concern the objects
        except InvalidInput as err:
            raise InvalidInput(f"Invalid job spec: {err}") from None
