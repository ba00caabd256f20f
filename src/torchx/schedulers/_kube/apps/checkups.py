"""What jobs on Kubernetes need: a kubeconfig, a server that answers, rights."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchx.errors import BackendUnavailable, NotInstalled, TorchXError
from torchx.schedulers._core.checkups import Checkup, Finding, broken, neutral, ok, warning
from torchx.schedulers._kube.calls import Kind
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.connect import connect
from torchx.schedulers._kube.errors import ConfigError, NoCluster
from torchx.schedulers._kube.retry import Patience

_PATIENCE = Patience(timeout_s=6.0, pauses_s=(), total_s=0.0)
_REVIEWS = Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")

Right = tuple[Kind, str, str]
"""Kind of objects, verb and subresource."""
Check = Callable[[KubeClient, str], Finding]
"""Looks at a namespace."""

_OLDEST = (1, 29)
_LOGIN = "Log in to the cluster, or choose a context: kubectl config get-contexts"


def checkups_of(rights: Sequence[Right], more: Mapping[str, Check]) -> list[Checkup]:
    """All checks; one alone where no cluster is set up.

    Args:
        rights: what a user must be allowed to do.
        more: further checks of a scheduler, by their names; `rights` takes the place of ours.
    """
    try:
        client, config = connect(patience=_PATIENCE)
    except (NoCluster, NotInstalled) as err:
        absent = neutral(f"not set up: {err}")
        return [Checkup("cluster", lambda: absent)]
    except ConfigError as err:
        wrong = broken(str(err), _LOGIN)
        return [Checkup("cluster", lambda: wrong)]
    client.transport.close()
    namespace = config.namespace or "default"
    checks: dict[str, Check] = {
        "server": lambda client, _: _server(client, config.cluster.server),
        "rights": lambda client, namespace: check_rights(client, namespace, rights),
        **more,
    }
    return [Checkup(name, functools.partial(_run, checks[name], namespace)) for name in checks]


def _run(check: Check, namespace: str) -> Finding:
    client, _ = connect(patience=_PATIENCE)
    try:
        return check(client, namespace)
    finally:
        client.transport.close()


def _server(client: KubeClient, address: str) -> Finding:
    try:
        version = client.server_version()
    except BackendUnavailable as err:
        return broken(str(err), _LOGIN)
    text = f"Kubernetes {version[0]}.{version[1]} at {address}"
    if version < _OLDEST:
        return warning(f"{text}: retries and `min_replicas` need 1.29", "Upgrade the cluster")
    return ok(text)


def check_rights(client: KubeClient, namespace: str, rights: Sequence[Right]) -> Finding:
    """Which of these rights the user lacks in a namespace."""
    try:
        denied = [
            f"{verb} {kind.plural}{'/' + sub if sub else ''}"
            for kind, verb, sub in rights
            if not _allowed(client, _review(namespace, kind, verb, sub))
        ]
    except TorchXError as err:
        return warning(f"rights cannot be checked: {err}")
    if denied:
        first = denied[0].split()
        command = f"kubectl auth can-i {first[0]} {first[1]} -n {namespace}"
        return broken(f"not allowed in namespace `{namespace}`: {', '.join(denied)}", command)
    return ok(f"all that jobs need is allowed in namespace `{namespace}`", namespace=namespace)


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
