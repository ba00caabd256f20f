"""What jobs on Kubernetes need: a kubeconfig, a server that answers, rights, queues, Docker."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchx.errors import BackendUnavailable, NotInstalled, TorchXError
from torchx.schedulers._core.checkups import Checkup, Finding, broken, neutral, ok, warning

from .calls import JOBS, LOCAL_QUEUES, PODS, SERVICES, Kind, Selection
from .client import KubeClient
from .connect import connect
from .errors import ConfigError, NoCluster
from .retry import Patience

_PATIENCE = Patience(timeout_s=6.0, pauses_s=(), total_s=0.0)
_REVIEWS = Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
_VERBS = ("create", "patch", "delete")
_RIGHTS = ((SERVICES, "create", ""), (PODS, "list", ""), (PODS, "get", "log"))
_OLDEST = (1, 29)
_LOGIN = "Log in to the cluster, or choose a context: kubectl config get-contexts"


def checkups(kinds: Sequence[Kind] = (JOBS,)) -> list[Checkup]:
    """All checks; one alone where no cluster is set up.

    Args:
        kinds: of objects that run apps; one of them must be allowed.
    """
    try:
        client, config = connect(patience=_PATIENCE)
    except (NoCluster, NotInstalled) as err:
        absent = neutral(f"not set up: {err}")
        return [Checkup("cluster", lambda: absent)]
    except ConfigError as err:
        wrong = broken(str(err), _LOGIN)
        return [Checkup("cluster", lambda: wrong)]
    namespace = config.namespace or "default"
    return [
        Checkup("server", lambda: _server(client, config.cluster.server)),
        Checkup("rights", lambda: _rights(client, namespace, kinds)),
        Checkup("queues", lambda: _queues(client, namespace)),
    ]


def _server(client: KubeClient, address: str) -> Finding:
    try:
        version = client.server_version()
    except BackendUnavailable as err:
        return broken(str(err), _LOGIN)
    text = f"Kubernetes {version[0]}.{version[1]} at {address}"
    if version < _OLDEST:
        return warning(f"{text}: retries and `min_replicas` need 1.29", "Upgrade the cluster")
    return ok(text)


def _rights(client: KubeClient, namespace: str, kinds: Sequence[Kind]) -> Finding:
    def denied_of(rights: Iterable[tuple[Kind, str, str]]) -> list[str]:
        return [
            f"{verb} {kind.plural}{'/' + sub if sub else ''}"
            for kind, verb, sub in rights
            if not _allowed(client, _review(namespace, kind, verb, sub))
        ]

    try:
        # any of the versions of a kind will do
        of_kinds = (denied_of((kind, verb, "") for verb in _VERBS) for kind in kinds)
        denied = [*min(of_kinds, key=len), *denied_of(_RIGHTS)]
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


def _queues(client: KubeClient, namespace: str) -> Finding:
    find = functools.partial(client.list_objects, Selection(LOCAL_QUEUES, namespace))
    try:
        names = [item["metadata"]["name"] for item in find().items]
    except TorchXError:  # no Kueue, or no right to look at it
        names = []
    if names:
        return ok(f"queues of Kueue: {', '.join(names)}", queue=names[0])
    return neutral("no queue of Kueue in this namespace; jobs start without one")
