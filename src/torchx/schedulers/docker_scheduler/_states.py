"""Converts Docker's records of containers to snapshots of apps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.schedulers._core.exits import from_shell
from torchx.schedulers.api import AppSnapshot, ReplicaSnapshot
from torchx.specs.api import AppState, Role

from ._request import (
    LABEL_APP_ID,
    LABEL_LAUNCHER,
    LABEL_MAX_RETRIES,
    LABEL_ON_FAILURE,
    LABEL_REPLICA_ID,
    LABEL_ROLE_NAME,
)
from ._times import parse_ns

CONTAINER_STATE: dict[str, AppState] = {
    "created": AppState.SUBMITTED,
    "restarting": AppState.PENDING,
    "running": AppState.RUNNING,
    "paused": AppState.PENDING,
    "removing": AppState.PENDING,
    "dead": AppState.FAILED,
}
"""States of containers; for ``exited`` the exit code decides."""

UNKNOWN_IMAGE = "<UNKNOWN>"
SHORT_ID_CHARS = 12
"""Characters of a container's id in marks."""


@dataclass(frozen=True)
class Container:
    """A row of Docker's list of containers."""

    id: str
    name: str
    app_id: str
    role: str
    replica: int
    status: str
    exit_code: int | None
    """Docker's exit code; ``None`` while it runs, or if the list does not have it."""
    image_id: str
    created_s: int = 0
    """Seconds since the epoch, by the daemon's clock."""
    retried: bool = False
    ends_on_failure: bool = False
    launcher: str = ""
    """Label with the process that starts it."""

    @property
    def ended(self) -> bool:
        return self.status in ("exited", "dead")


@dataclass(frozen=True)
class Details:
    """The fields that only Docker's record of a single container has."""

    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""
    """Why the container could not be started."""
    started_ns: int | None = None
    ended_ns: int | None = None
    """When it last ended, also if it runs again."""
    restarts: int = 0
    memory_bytes: int = 0
    """Limit; 0 for none."""


@dataclass(frozen=True)
class Ended:
    """The recorded ends of an app."""

    cancelled: bool = False
    """True if a user requested it."""
    failed: bool = False
    """True if a replica had failed for good, which ends the others."""
    ids: frozenset[str] = frozenset()
    """Short ids of the containers that had not ended by themselves."""


def parse_container(row: Mapping[str, Any]) -> Container | None:
    """Parses a row of the list; ``None`` if it is not one of ours."""
    labels = row.get("Labels") or {}
    replica = labels.get(LABEL_REPLICA_ID, "")
    if not (replica.isascii() and replica.isdigit()) or LABEL_ROLE_NAME not in labels:
        return None
    names = [name[1:] for name in row.get("Names") or () if name.count("/") == 1]
    return Container(
        id=row["Id"],
        name=names[0] if names else row["Id"][:SHORT_ID_CHARS],
        app_id=labels.get(LABEL_APP_ID, ""),
        role=labels[LABEL_ROLE_NAME],
        replica=int(replica),
        status=row.get("State", ""),
        exit_code=parse_exit_code(row.get("Status", "")),
        image_id=row.get("ImageID", ""),
        created_s=row.get("Created") or 0,
        retried=LABEL_MAX_RETRIES in labels,
        ends_on_failure=labels.get(LABEL_ON_FAILURE) == "end",
        launcher=labels.get(LABEL_LAUNCHER, ""),
    )


def parse_exit_code(status: str) -> int | None:
    """Parses ``Exited (137) 2 hours ago``; ``None`` for any other status.

    >>> parse_exit_code("Exited (137) 2 hours ago")
    137
    """
    head, bracket, rest = status.partition("(")
    code = rest.partition(")")[0]
    if head.strip() != "Exited" or not bracket or not code.isdigit():
        return None
    return int(code)


def parse_details(record: Mapping[str, Any]) -> Details:
    """Parses the result of ``inspect`` for one container."""
    state = record.get("State") or {}
    host = record.get("HostConfig") or {}
    return Details(
        exit_code=state.get("ExitCode") or 0,
        oom_killed=bool(state.get("OOMKilled")),
        error=state.get("Error") or "",
        started_ns=parse_ns(state.get("StartedAt") or ""),
        ended_ns=parse_ns(state.get("FinishedAt") or ""),
        restarts=record.get("RestartCount") or 0,
        memory_bytes=host.get("Memory") or 0,
    )


def needs_details(container: Container) -> bool:
    """Returns True if the list does not have enough information about a container."""
    return container.retried or (container.ended and container.exit_code != 0)


def container_state(
    container: Container,
    exit_code: int | None = None,
    ended: Iterable[str] = (),
    abandoned: bool = False,
) -> AppState:
    """Returns the state of a replica.

    Args:
        exit_code: exit code of the container.
        ended: short ids of the containers whose end was requested.
        abandoned: True if nobody will start a container that was only created.
    """
    status = container.status
    if status in ("exited", "dead", "created") and container.id[:SHORT_ID_CHARS] in ended:
        return AppState.CANCELLED
    if status == "exited":
        return AppState.SUCCEEDED if exit_code == 0 else AppState.FAILED
    if status == "created" and abandoned:
        return AppState.FAILED
    return CONTAINER_STATE.get(status, AppState.UNKNOWN)


def by_role(containers: Sequence[Container]) -> dict[str, list[Container]]:
    """Groups the containers of an app in the order of its roles and replicas.

    Args:
        containers: in Docker's order, newest first. Replica 0 of each role is created first, role
            after role.
    """
    roles: dict[str, list[Container]] = {}
    for container in reversed(containers):
        roles.setdefault(container.role, []).append(container)
    firsts = {c.role: None for c in reversed(containers) if c.replica == 0}
    return {
        role: sorted(roles[role], key=lambda c: c.replica)
        for role in dict.fromkeys([*firsts, *roles])
    }


def build_snapshot(
    app_id: str,
    containers: Sequence[Container],
    details: Mapping[str, Details],
    images: Mapping[str, str],
    ended: Ended,
    abandoned: bool,
) -> AppSnapshot:
    """Builds the snapshot of an app.

    Args:
        containers: all containers of the app, in Docker's order.
        details: records by id, as far as they were requested.
        images: name of each image, by its id.
        abandoned: True if nobody will start the containers that were only created.
    """
    roles = by_role(containers)
    return AppSnapshot(
        app_id=app_id,
        replicas=tuple(
            _replica(container, details.get(container.id), ended, abandoned)
            for members in roles.values()
            for container in members
        ),
        roles=tuple(
            Role(name, images.get(members[0].image_id, UNKNOWN_IMAGE), num_replicas=len(members))
            for name, members in roles.items()
        ),
        name=app_id.rpartition("-")[0] or app_id,
        cancelled=ended.cancelled,
        message=_start_message(app_id, containers, ended, abandoned),
        restarts=sum(known.restarts for known in details.values()),
        ends_on_failure=any(container.ends_on_failure for container in containers),
        ending=ended.failed,
        created_ns=int(min(c.created_s for c in containers) * 1e9) if containers else None,
    )


def _replica(
    container: Container, details: Details | None, ended: Ended, abandoned: bool
) -> ReplicaSnapshot:
    code = details.exit_code if details is not None else container.exit_code
    state = container_state(container, code, ended.ids, abandoned)
    known = details or Details()
    reason = ""
    if container.status == "paused":
        reason = "paused"
    elif state is AppState.FAILED:
        reason = _reason(container, known)
    never_ran = not container.ended or bool(known.error)
    return ReplicaSnapshot(
        role=container.role,
        replica=container.replica,
        state=state,
        exit_code=None if never_ran or code is None else from_shell(code),
        reason=reason,
        host=container.name,
        attempt=known.restarts,
        started_ns=known.started_ns,
        ended_ns=known.ended_ns if container.ended else None,
        native_id=container.id,
    )


def _reason(container: Container, details: Details) -> str:
    """Returns why a container failed, beyond its exit code."""
    if details.error:
        return f"could not be started: {details.error}"
    if container.status == "created":
        return "was never started"
    if details.oom_killed:
        if not details.memory_bytes:
            return "out of memory"
        limit = details.memory_bytes >> 20
        return f"out of memory: its limit is {limit} MB, raise the role's memMB"
    return ""


def _start_message(
    app_id: str, containers: Sequence[Container], ended: Ended, abandoned: bool
) -> str:
    """Returns the message for an app whose containers were not all started."""
    waiting = sum(c.status == "created" for c in containers)
    if not waiting or ended.cancelled:
        return ""
    if not abandoned:
        return f"{waiting} of {len(containers)} replicas are not started yet"
    return (
        f"half-started: {waiting} of {len(containers)} replicas will never start, as their launcher"
        f" has ended; remove the app with `torchx delete local_docker:///{app_id}`"
    )
