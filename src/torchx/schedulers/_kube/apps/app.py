"""The objects of one app, and the app's data in them. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchx._startup.dataclass import field, light_dataclass
from torchx.specs.api import AppDef

from .labels import ANNOTATION_APP, ANNOTATION_ENDED, LABEL_QUEUE, LABEL_ROLE_INDEX
from .labels import LABEL_UNIQUE_NAME as APP_LABEL

Object = Mapping[str, Any]


@light_dataclass(frozen=True)
class NotedRole:
    """The data about a role in the annotation of an object."""

    name: str
    image: str
    replicas: int
    minimum: int | None
    retries: int
    job: str
    """Name of the object that creates its pods."""


@light_dataclass(frozen=True)
class App:
    """The main objects of one app, by name, and the data in their annotations."""

    id: str
    name: str
    ends_on_failure: bool
    roles: tuple[NotedRole, ...]
    jobs: Mapping[str, Object]
    pods: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """Data of each role, by name."""

    @property
    def missing(self) -> list[str]:
        """Names of objects that were not created, or are gone."""
        return [name for name in dict.fromkeys(r.job for r in self.roles) if name not in self.jobs]

    @property
    def half_submitted(self) -> bool:
        """True if no object was released, or some are missing and no other was released."""
        held = [is_held(job) for job in self.jobs.values()]
        return all(held) if self.missing else any(held)


def note_app(
    app: AppDef, jobs: Sequence[str], ends_on_failure: bool, retries: Sequence[int] | None = None
) -> str:
    """Returns the annotation for the main objects of an app.

    Args:
        jobs: name of the object that creates the pods, for each role.
        retries: retries of each role, if they differ from those of the role.
    """
    roles = [
        {
            "name": role.name,
            "image": role.image,
            "replicas": role.num_replicas,
            "min": role.min_replicas,
            "retries": role.max_retries if retries is None else retries[i],
            "job": jobs[i],
        }
        for i, role in enumerate(app.roles)
    ]
    noted = {"name": app.name, "end": ends_on_failure, "roles": roles}
    return json.dumps(noted, ensure_ascii=False, separators=(",", ":"))


def parse_app(app_id: str, jobs: Iterable[Object], pods: Iterable[Object]) -> App | None:
    """Parses the objects of one app; ``None`` if none of them is ours."""
    found: dict[str, Object] = {}
    noted: Mapping[str, Any] | None = None
    for job in jobs:
        text = (job["metadata"].get("annotations") or {}).get(ANNOTATION_APP)
        if text is not None:
            noted = noted or _read(text)
            found[job["metadata"]["name"]] = job
    if noted is None:
        return None
    roles = tuple(_parse_role(role) for role in noted["roles"])
    by_role: dict[str, list[Object]] = {}
    for pod in pods:
        index = (pod["metadata"].get("labels") or {}).get(LABEL_ROLE_INDEX, "")
        if index.isdigit() and int(index) < len(roles):
            by_role.setdefault(roles[int(index)].name, []).append(pod)
    return App(
        id=app_id,
        name=str(noted.get("name", "")),
        ends_on_failure=bool(noted.get("end", True)),
        roles=roles,
        jobs=found,
        pods=by_role,
    )


def _parse_role(role: Mapping[str, Any]) -> NotedRole:
    return NotedRole(
        name=str(role["name"]),
        image=str(role.get("image", "")),
        replicas=int(role["replicas"]),
        minimum=role.get("min"),
        retries=int(role.get("retries", 0)),
        job=str(role["job"]),
    )


def _read(text: str) -> Mapping[str, Any] | None:
    """Parses an annotation; ``None`` if it is not ours."""
    try:
        noted = json.loads(text)
    except ValueError:
        return None
    return noted if isinstance(noted, dict) and isinstance(noted.get("roles"), list) else None


def group_jobs(jobs: Iterable[Object]) -> dict[str, list[Object]]:
    """Groups main objects by app id, latest app first."""
    apps: dict[str, list[Object]] = {}
    for job in sorted(
        jobs, key=lambda j: str(j["metadata"].get("creationTimestamp")), reverse=True
    ):
        metadata = job["metadata"]
        name = (metadata.get("labels") or {}).get(APP_LABEL)
        if name:
            apps.setdefault(f"{metadata['namespace']}:{name}", []).append(job)
    return apps


def condition(obj: Object, *types: str) -> Object | None:
    """Returns the first of these conditions that is true."""
    found = (obj.get("status") or {}).get("conditions") or ()
    for type_ in types:
        for item in found:
            if item.get("type") == type_ and item.get("status") == "True":
                return dict(item)
    return None


def ended_mark(obj: Object) -> str:
    """Returns ``cancelled`` or ``failed`` for an object that we ended; else empty."""
    return str((obj["metadata"].get("annotations") or {}).get(ANNOTATION_ENDED) or "")


def is_held(obj: Object) -> bool:
    """Returns True if an object was created, but not yet released or queued."""
    labels = obj["metadata"].get("labels") or {}
    return bool(obj["spec"].get("suspend")) and not ended_mark(obj) and LABEL_QUEUE not in labels


def main_container(app: App, pod: str) -> str:
    """Returns the name of the container that runs the role's program in a pod."""
    every = (found for pods in app.pods.values() for found in pods)
    found = next((p for p in every if p["metadata"]["name"] == pod), None)
    return "" if found is None else str(found["spec"]["containers"][0]["name"])


def queue_of(app: App) -> str:
    """Returns the LocalQueue that the app waits in; empty for none."""
    for job in app.jobs.values():
        queue = (job["metadata"].get("labels") or {}).get(LABEL_QUEUE)
        if queue:
            return str(queue)
    return ""
