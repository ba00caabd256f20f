"""Names of the published package."""

import sys
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
from torchx.schedulers._kube.apps.official import to_official
from torchx.schedulers._kube.apps.overlays import read_overlay
from torchx.schedulers._kube.apps.pods import RESERVED_MEMMB, RESERVED_MILLICPU, PodOptions
from torchx.specs.api import AppDef, Role
from torchx.version import __version__

from ._options import Opts
from ._plan import Facts
from ._request import build_request
from ._volcano import build_plain_pod

KubernetesOpts = Opts
"""Name of the options in release 0.7."""


def unique_name(name: str) -> str:
    """Returns a new name for an app, from the function that clients may replace."""
    import torchx.schedulers.kubernetes_scheduler as package

    return package.make_unique(name)


def prefix_container_name(container_name: str, role_name: str, replica_id: int) -> str:
    """Returns the prefix of a container's lines: empty for the role's own container."""
    if container_name == f"{role_name}-{replica_id}":
        return ""
    colour, end = ("\033[34m", "\033[0m") if sys.stdout.isatty() else ("", "")
    return f"{colour}{container_name}{end} "


def pod_labels(app: Any, role_idx: int, role: Role, replica_id: int, app_id: str) -> dict[str, str]:
    """Returns the labels of one replica, as in the published package."""
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


def app_to_resource(
    app: AppDef,
    queue: str,
    service_account: str | None = None,
    priority_class: str | None = None,
    reserved_millicpu: int = RESERVED_MILLICPU,
    reserved_memmb: int = RESERVED_MEMMB,
    efa_device_count: int | None = None,
) -> dict[str, Any]:
    """Builds the Volcano Job of an app, with a new name."""
    opts = Opts(
        queue=queue,
        service_account=service_account,
        priority_class=priority_class,
        reserved_millicpu=reserved_millicpu,
        reserved_memmb=reserved_memmb,
        efa_device_count=efa_device_count,
    )
    overlays = {role.name: read_overlay(role, app) for role in app.roles}
    facts = Facts(overlays=overlays, api="volcano")
    return build_request(app, unique_name(app.name), opts, facts).resource


def role_to_pod(
    name: str,
    role: Role,
    service_account: str | None,
    reserved_millicpu: int = RESERVED_MILLICPU,
    reserved_memmb: int = RESERVED_MEMMB,
    efa_device_count: int | None = None,
) -> Any:
    """Builds the pod of a role as the official client's ``V1Pod``; macros are kept.

    Raises:
        ModuleNotFoundError: without the package ``kubernetes``.
    """
    options = PodOptions(
        service_account=service_account,
        reserved_millicpu=reserved_millicpu,
        reserved_memmb=reserved_memmb,
        efa_device_count=efa_device_count,
    )
    return to_official(build_plain_pod(role, name, options), "V1Pod")
