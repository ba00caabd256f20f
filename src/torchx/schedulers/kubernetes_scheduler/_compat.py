"""Names of the published package, and its ways to write overlays."""

from typing import Any

from torchx.schedulers._kube.apps.labels import (
    LABEL_APP_NAME,
    LABEL_KUBE_APP_NAME,
    LABEL_ORGANIZATION,
    LABEL_REPLICA_ID,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
    LABEL_UNIQUE_NAME,
    LABEL_VERSION,
    MANAGED_BY,
    label_value,
)
from torchx.specs.api import AppDef, Role
from torchx.specs.overlays import get_overlay
from torchx.version import __version__

from ._options import Opts

KubernetesOpts = Opts
"""Name of the options in release 0.7."""

_NAMESPACE = "kubernetes"
_KIND = "V1Pod"
_PARTS = ("spec", "metadata")
_OF_A_POD = {*_PARTS, "apiVersion", "kind"}


def read_overlay(role: Role, app: AppDef | None = None) -> dict[str, Any]:
    """The user's own fields of the pods of a role, from metadata or from the file that it names.

    Args:
        app: whose metadata, which ``--metadata`` of components sets, are for roles without any.
    """
    of_app = app is not None and _NAMESPACE not in role.metadata
    target = app if app is not None and of_app else role
    metadata: dict[str, Any] = target.metadata
    held = metadata.get(_NAMESPACE)
    if isinstance(held, dict) and held and {*held} <= _OF_A_POD:
        return held  # written by hand; with several keys it would be taken for kinds
    overlay = get_overlay(target, _NAMESPACE, _KIND)
    if isinstance(held, str) and not overlay:  # a file may be written like that as well
        parts = {k: get_overlay(target, _NAMESPACE, k, flat_fallback=False) for k in _PARTS}
        return {key: part for key, part in parts.items() if part}
    return {key: value for key, value in overlay.items() if key not in ("apiVersion", "kind")}


def pod_labels(app: Any, role_idx: int, role: Role, replica_id: int, app_id: str) -> dict[str, str]:
    """Labels of one replica, as the published package writes them."""
    return {
        LABEL_VERSION: label_value(__version__),
        LABEL_APP_NAME: label_value(app.name),
        LABEL_ROLE_INDEX: str(role_idx),
        LABEL_ROLE_NAME: label_value(role.name),
        LABEL_REPLICA_ID: str(replica_id),
        LABEL_KUBE_APP_NAME: label_value(app.name),
        LABEL_ORGANIZATION: MANAGED_BY,
        LABEL_UNIQUE_NAME: label_value(app_id),
    }


def sanitize_for_serialization(obj: Any) -> Any:
    """Plain data as it is; an object of the official client as its JSON."""
    if isinstance(obj, dict):
        return {key: sanitize_for_serialization(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [sanitize_for_serialization(value) for value in obj]
    if obj is None or isinstance(obj, (str, int, float, bool)):
        return obj
    from kubernetes import client

    return client.ApiClient().sanitize_for_serialization(obj)
