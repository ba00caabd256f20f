"""Checks for ``kubernetes_mcad``: a cluster that serves AppWrappers."""

from torchx.schedulers._core.checkups import Checkup, Configured, Finding, broken, ok
from torchx.schedulers._kube.apps.checkups import check_rights, checkups_of
from torchx.schedulers._kube.calls import JOBS, PODS, SERVICES, Selection
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.errors import MissingKind

from ._client import KINDS

_PODS = ((PODS, "list", ""), (PODS, "delete", ""), (PODS, "get", "log"))
_VERBS = ("create", "list", "patch", "delete")
_WRAPPED = ((JOBS, "create", ""), (SERVICES, "create", ""))
"""What the controller of ``v1beta2`` wants of those who wrap such objects."""
_INSTALL = "Install the AppWrapper controller: https://project-codeflare.github.io/appwrapper"


def checkups(configured: Configured | None = None) -> list[Checkup]:
    """Returns all checks; only one if no cluster is set up."""
    checks = {"rights": _rights, "appwrappers": _generation}
    return checkups_of(_PODS, checks, configured or Configured())


def _rights(client: KubeClient, namespace: str) -> Finding:
    known = client.groups().get(KINDS["v1beta2"].group, ())
    wrappers = [(KINDS["v1beta2"], verb, "") for verb in _VERBS]  # of any version
    wrapped = _WRAPPED if "v1beta2" in known else ()
    return check_rights(client, namespace, [*wrappers, *_PODS, *wrapped])


def _generation(client: KubeClient, namespace: str) -> Finding:
    served = [version for version in KINDS if _serves(client, namespace, version)]
    if not served:
        return broken("the cluster serves no AppWrappers", _INSTALL)
    return ok(f"AppWrappers of {', '.join(served)}", appwrapper_version=served[-1])


def _serves(client: KubeClient, namespace: str, version: str) -> bool:
    try:
        client.list_objects(Selection(KINDS[version], namespace))
    except MissingKind:  # other kinds of the group may have this version
        return False
    return True
