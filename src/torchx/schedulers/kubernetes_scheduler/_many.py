"""Queries and removes many apps, with a few requests for all of them."""

from collections.abc import Iterable, Iterator, Sequence

from torchx.schedulers._kube.apps.app import Object, group_jobs, parse_app
from torchx.schedulers._kube.apps.labels import LABEL_UNIQUE_NAME, of_apps
from torchx.schedulers._kube.apps.look import Looked, list_pods_of
from torchx.schedulers._kube.calls import Selection
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.errors import Forbidden, MissingKind

from ._kinds import KINDS, ObjectKind, kind_of_pods

_NAMES = 100
"""Most apps in one selector, which is part of the URL, whose length is limited."""


def look_many(
    kube: KubeClient, namespace: str, names: Sequence[str], kinds: Sequence[ObjectKind]
) -> dict[str, tuple[Looked, ObjectKind]]:
    """Returns the existing apps by name, with one request for pods and one for each kind."""
    found: dict[str, tuple[Looked, ObjectKind]] = {}
    for some in _chunks(names):
        pods: dict[str, list[Object]] = {}
        for pod in list_pods_of(kube, namespace, some):
            pods.setdefault(pod["metadata"]["labels"][LABEL_UNIQUE_NAME], []).append(pod)
        needed = [KINDS["job"], *map(kind_of_pods, pods.values())]
        for kind in kinds:
            jobs_of = _list(kube, kind, namespace, some, needed=kind in needed)
            for app_id, jobs in group_jobs(jobs_of).items():
                name = app_id.partition(":")[2]
                app = parse_app(app_id, jobs, pods.get(name, ()))
                if app is not None:
                    found[name] = Looked(app, kind.kind, {}), kind
    return found


def remove_many(
    kube: KubeClient, namespace: str, names: Sequence[str], kinds: Iterable[ObjectKind]
) -> None:
    """Removes the objects of these apps, and what they own, with one request for each kind.

    Raises:
        Forbidden: if the user may delete objects one by one only; some may be gone then.
    """
    wanted = [*kinds]
    for some in _chunks(names):
        for kind in wanted:
            kube.delete_all(Selection(kind.kind, namespace, of_apps(some)))


def _list(
    kube: KubeClient, kind: ObjectKind, namespace: str, names: Sequence[str], *, needed: bool
) -> list[Object]:
    try:
        return [*kube.list_objects(Selection(kind.kind, namespace, of_apps(names))).items]
    except MissingKind:
        return []
    except Forbidden:
        if needed:
            raise
        return []  # without the permission for this kind, there are none


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[i : i + _NAMES] for i in range(0, len(names), _NAMES))
