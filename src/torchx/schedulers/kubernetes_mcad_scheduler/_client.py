"""The calls to the cluster: submit, end, remove; and local records of cancelled apps."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, JobStartError, TorchXError
from torchx.schedulers._core.interrupting import sigterm_raises
from torchx.schedulers._core.records import recall, remember
from torchx.schedulers._kube.apps.app import App, Object, parse_app
from torchx.schedulers._kube.apps.labels import ANNOTATION_APP, ANNOTATION_ENDED
from torchx.schedulers._kube.apps.look import Looked, list_ours, look_at
from torchx.schedulers._kube.apps.size import check_size
from torchx.schedulers._kube.apps.snapshots import pod_state
from torchx.schedulers._kube.calls import (
    APP_WRAPPERS_V1BETA1,
    APP_WRAPPERS_V1BETA2,
    PODS,
    Kind,
)
from torchx.schedulers._kube.client import MARK, KubeClient
from torchx.schedulers._kube.errors import (
    AlreadyExists,
    ApiError,
    ConfigError,
    MissingKind,
    NotFound,
    NotSent,
    Untrusted,
)
from torchx.schedulers.api import AppState
from torchx.schedulers.ids import random_id

from ._request import KubernetesMCADJob

KINDS: Mapping[str, Kind] = {"v1beta1": APP_WRAPPERS_V1BETA1, "v1beta2": APP_WRAPPERS_V1BETA2}
"""Kinds by the option ``appwrapper_version``; a cluster serves one of them."""
_RECORDS = "kubernetes_mcad"

logger = get_logger(__name__)


class _NameTaken(JobStartError, InvalidInput):
    """Another app has this name."""


@contextmanager
def _translated(version: str) -> Iterator[None]:
    try:
        yield
    except MissingKind as err:
        other = next(name for name in KINDS if name != version)
        msg = f"{err}; for the other generation, set `appwrapper_version={other}`"
        raise MissingKind(msg, err.code, err.status) from None


def submit(kube: KubeClient, job: KubernetesMCADJob) -> None:
    """Creates the AppWrapper once, even if the response is lost; rolls back on failure.

    Raises:
        JobStartError: if another app has the name.
        InvalidInput: for more replicas than a cluster keeps in one object.
        TorchXError: any error of the cluster.
    """
    version = version_of(job.resource)
    items = (job.resource["spec"].get("resources") or {}).get("GenericItems") or ()
    pods = [item for item in items if item["generictemplate"]["kind"] == "Pod"]
    check_size(job.resource, pods, "AppWrapper", "`appwrapper_version=v1beta2` or `kubernetes`")
    name, namespace = job.resource["metadata"]["name"], job.resource["metadata"]["namespace"]
    body = copy.copy(job.resource)
    annotations = {**body["metadata"]["annotations"], MARK: random_id()}
    body["metadata"] = {**body["metadata"], "annotations": annotations}
    with sigterm_raises():
        try:
            with _translated(version):
                kube.create(KINDS[version], namespace, body)
        except AlreadyExists as err:
            msg = f"{err}; there is an app `{job.app_id}` already, submit again for another name"
            raise _NameTaken(msg) from None
        except (ApiError, ConfigError, NotSent, Untrusted):
            raise  # it was not made
        except BaseException:
            with suppress(TorchXError):
                kube.withdraw(KINDS[version], namespace, name)
            raise


def version_of(wrapper: Object) -> str:
    """Returns ``v1beta1`` or ``v1beta2``."""
    return str(wrapper["apiVersion"]).rpartition("/")[2]


def look(kube: KubeClient, namespace: str, name: str, known: Kind | None) -> Looked | None:
    """Queries one app with two requests, or three if its generation is not known."""
    for kind in [known] if known is not None else KINDS.values():
        looked = look_at(kube, kind, namespace, name)
        if looked is not None:
            return looked
    return None


def list_wrappers(
    kube: KubeClient, namespace: str, known: Kind | None
) -> tuple[Kind, list[Object]]:
    """Returns TorchX's AppWrappers in a namespace, of the generation that the cluster serves."""
    for kind in [known] if known is not None else KINDS.values():
        found = list_ours(kube, kind, namespace)
        if found:
            break
    return kind, found


# -- ending --------------------------------------------------------------------------------------


def cancel(kube: KubeClient, looked: Looked) -> None:
    """Removes the AppWrapper after recording it locally: the cluster keeps nothing of it."""
    note = _note_of(looked.app)
    if note:
        known = recall(_RECORDS, looked.app.id) or {}
        remember(_RECORDS, looked.app.id, {**known, "cancelled": True, "app": note})
    _delete(kube, looked)


def remove(kube: KubeClient, looked: Looked) -> None:
    """Removes the AppWrapper."""
    _delete(kube, looked)


def _delete(kube: KubeClient, looked: Looked) -> None:
    namespace = looked.app.id.partition(":")[0]
    for name in looked.app.jobs:
        kube.delete(looked.kind, namespace, name)


def _note_of(app: App) -> str:
    for wrapper in app.jobs.values():
        return str((wrapper["metadata"].get("annotations") or {}).get(ANNOTATION_APP) or "")
    return ""


def end_pods(kube: KubeClient, looked: Looked) -> None:
    """Ends the running pods; the AppWrapper is kept, with the state of the app."""
    namespace = looked.app.id.partition(":")[0]
    changes = {"metadata": {"annotations": {ANNOTATION_ENDED: "failed"}}}
    for name in looked.app.jobs:
        try:
            kube.patch(looked.kind, namespace, name, changes)
        except NotFound:
            logger.debug("AppWrapper `%s` is gone meanwhile", name)
    for pods in looked.app.pods.values():
        for pod in pods:
            live = pod_state(pod) in (AppState.PENDING, AppState.RUNNING)
            if live and "deletionTimestamp" not in pod["metadata"]:
                kube.delete(PODS, namespace, pod["metadata"]["name"])


# -- what is noted here --------------------------------------------------------------------------


def recall_cancelled(app_id: str) -> App | None:
    """Returns an app that was cancelled from here, and that the cluster does not have any more."""
    noted = recall(_RECORDS, app_id)
    if not noted or not noted.get("cancelled"):
        return None
    return parse_app(app_id, [_shadow(app_id, str(noted.get("app")))], ())


def was_cancelled(app_id: str) -> bool:
    """Returns True if the app was cancelled from here."""
    return bool((recall(_RECORDS, app_id) or {}).get("cancelled"))


def marked(app: App) -> App:
    """Returns the app marked as cancelled."""
    jobs = {name: _with_mark(wrapper) for name, wrapper in app.jobs.items()}
    return App(app.id, app.name, app.ends_on_failure, app.roles, jobs, app.pods)


def _with_mark(wrapper: Object) -> Object:
    metadata = wrapper["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION_ENDED: "cancelled"}
    return {**wrapper, "metadata": {**metadata, "annotations": annotations}}


def _shadow(app_id: str, note: str) -> dict[str, Any]:
    name = app_id.partition(":")[2]
    annotations = {ANNOTATION_APP: note, ANNOTATION_ENDED: "cancelled"}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {}, "status": {}}
