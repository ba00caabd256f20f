"""Checks for jobs on Kubernetes: kubeconfig, server and permissions."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchx.errors import BackendUnavailable, NotInstalled, TorchXError
from torchx.schedulers._core.checkups import (
    Checkup,
    Configured,
    Finding,
    broken,
    neutral,
    ok,
    warning,
)
from torchx.schedulers._core.clocks import clock_finding, parse_http_date
from torchx.schedulers._image_checkups import container_checkups
from torchx.schedulers._kube.calls import NAMESPACES, Kind
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.connect import connect
from torchx.schedulers._kube.errors import (
    ConfigError,
    Forbidden,
    NoCluster,
    NotFound,
    Unauthorized,
)
from torchx.schedulers._kube.retry import Patience

_PATIENCE = Patience(timeout_s=6.0, pauses_s=(), total_s=0.0)
_REVIEWS = Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")

Right = tuple[Kind, str, str]
"""Kind of objects, verb and subresource."""
Check = Callable[[KubeClient, str], Finding]
"""Queries a namespace."""

_OLDEST = (1, 29)
_LOGIN = "Log in to the cluster, or choose a context: kubectl config get-contexts"


def checkups_of(
    rights: Sequence[Right], more: Mapping[str, Check], configured: Configured
) -> list[Checkup]:
    """Returns all checks; only one if no cluster is set up.

    Args:
        rights: the permissions that a user needs.
        more: further checks of a scheduler, by their names; `rights` replaces ours.
        configured: may name kubeconfig, context and namespace.
    """
    where = configured.text("kubeconfig"), configured.text("context")
    try:
        client, config = connect(*where, patience=_PATIENCE)
    except (NoCluster, NotInstalled) as err:
        absent = neutral(f"not set up: {err}")
        return [Checkup("cluster", lambda: absent)]
    except ConfigError as err:
        wrong = broken(str(err), _LOGIN)
        return [Checkup("cluster", lambda: wrong)]
    client.transport.close()
    namespace = configured.text("namespace") or config.namespace or "default"
    checks: dict[str, Check] = {
        "server": lambda client, _: _server(client, config.cluster.server),
        "clock": _clock,
        "namespace": _namespace,
        "rights": lambda client, namespace: check_rights(client, namespace, rights),
        **more,
    }

    def run(check: Check) -> Finding:
        client, _ = connect(*where, patience=_PATIENCE)
        try:
            return check(client, namespace)
        except (BackendUnavailable, Unauthorized) as err:
            return broken(str(err), _LOGIN)
        finally:
            client.transport.close()

    found = [Checkup(name, functools.partial(run, check)) for name, check in checks.items()]
    return found + container_checkups(configured)


def _server(client: KubeClient, address: str) -> Finding:
    try:
        version = client.server_version()
    except Forbidden as err:
        return neutral(f"the server at {address} answers, its version is not known: {err}")
    text = f"Kubernetes {version[0]}.{version[1]} at {address}"
    if version < _OLDEST:
        return warning(f"{text}: retries and `min_replicas` need 1.29", "Upgrade the cluster")
    return ok(text)


def _clock(client: KubeClient, namespace: str) -> Finding:
    there_s = parse_http_date(client.server_date())
    return clock_finding(there_s, time.time(), "the API server")


def _namespace(client: KubeClient, namespace: str) -> Finding:
    try:
        found = client.get(NAMESPACES, "", namespace)
    except NotFound:
        create = f"kubectl create namespace {namespace}"
        return broken(f"there is no namespace `{namespace}`", f"{create}, or name another one")
    except Forbidden as err:  # those of a namespace need not see it
        return neutral(f"whether there is `{namespace}` is not known: {err}")
    if (found.get("status") or {}).get("phase") == "Terminating":
        return broken(f"namespace `{namespace}` is being deleted", "Name another one")
    return ok(f"`{namespace}` is there", namespace=namespace)


def check_rights(client: KubeClient, namespace: str, rights: Sequence[Right]) -> Finding:
    """Checks that the user has these permissions in a namespace."""
    try:
        denied = [
            f"{verb} {kind.plural}{'/' + sub if sub else ''}"
            for kind, verb, sub in rights
            if not _allowed(client, _review(namespace, kind, verb, sub))
        ]
    except (BackendUnavailable, Unauthorized):
        raise
    except TorchXError as err:
        return warning(f"rights cannot be checked: {err}")
    if denied:
        first = denied[0].split()
        command = f"kubectl auth can-i {first[0]} {first[1]} -n {namespace}"
        return broken(f"not allowed in namespace `{namespace}`: {', '.join(denied)}", command)
    return ok(f"all that jobs need is allowed in namespace `{namespace}`")


def _review(namespace: str, kind: Kind, verb: str, subresource: str) -> dict[str, Any]:
    attributes = {"namespace": namespace, "verb": verb, "group": kind.group}
    attributes |= {"resource": kind.plural, "subresource": subresource}
    return {
        "apiVersion": _REVIEWS.api_version,
        "kind": _REVIEWS.name,
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }


def _allowed(client: KubeClient, review: Mapping[str, Any]) -> bool:
    found = client.create(_REVIEWS, "", dict(review), strict=False)
    return bool((found.get("status") or {}).get("allowed"))
