"""Checks for ``kubernetes`` beyond those of the cluster: kinds of objects, and queues."""

from torchx.errors import TorchXError
from torchx.schedulers._core.checkups import Checkup, Configured, Finding, broken, neutral, ok
from torchx.schedulers._kube.apps.checkups import checkups_of
from torchx.schedulers._kube.calls import JOBS, LOCAL_QUEUES, PODS, SERVICES, Selection
from torchx.schedulers._kube.client import KubeClient

from ._kinds import GROUPS, has_kueue

_RIGHTS = (
    (JOBS, "create", ""),
    (JOBS, "patch", ""),
    (JOBS, "delete", ""),
    (SERVICES, "create", ""),
    (PODS, "list", ""),
    (PODS, "get", "log"),
)


def checkups(configured: Configured | None = None) -> list[Checkup]:
    """Returns all checks; only one if no cluster is set up."""
    given = configured or Configured()
    wanted = None if given.text("job_api") == "volcano" else given.text("queue")

    def queues(client: KubeClient, namespace: str) -> Finding:
        return _queues(client, namespace, wanted)

    return checkups_of(_RIGHTS, {"kinds": _kinds, "queues": queues}, given)


def _kinds(client: KubeClient, namespace: str) -> Finding:
    groups = client.groups()
    return ok(
        f"`job_api` can be: {', '.join(api for api, group in GROUPS.items() if group in groups)}"
    )


def _queues(client: KubeClient, namespace: str, wanted: str | None) -> Finding:
    groups = client.groups()
    volcano = GROUPS["volcano"] in groups
    names: list[str] = []
    if has_kueue(groups):
        try:
            found = client.list_objects(Selection(LOCAL_QUEUES, namespace)).items
            names = [item["metadata"]["name"] for item in found]
        except TorchXError:  # the user may lack the permission to list them
            names = []
    if names and wanted and wanted not in names:
        text = f"`{wanted}` is none of the queues of Kueue here: {', '.join(names)}"
        return broken(text, f"queue = {names[0]}")
    if names:
        options = {"queue": names[0], **({"job_api": "job"} if volcano else {})}
        return ok(f"queues of Kueue: {', '.join(names)}", **options)
    if volcano:
        return ok("Volcano has queues, one is `default`", queue="default", job_api="volcano")
    return neutral("no queue of Kueue in this namespace; jobs start without one")
