"""Docker's records of containers as states, statuses and messages."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.schedulers.api import DescribeAppResponse
from torchx.specs.api import (
    NONE,
    AppState,
    ReplicaStatus,
    Role,
    RoleStatus,
    is_terminal,
)

from ._request import LABEL_APP_ID, LABEL_REPLICA_ID, LABEL_ROLE_NAME

CONTAINER_STATE: dict[str, AppState] = {
    "created": AppState.SUBMITTED,
    "restarting": AppState.PENDING,
    "running": AppState.RUNNING,
    "paused": AppState.PENDING,
    "removing": AppState.PENDING,
    "dead": AppState.FAILED,
}
"""States of containers; for one that ``exited`` its exit code decides."""

UNKNOWN_IMAGE = "<UNKNOWN>"


@dataclass(frozen=True)
class Container:
    """One row of Docker's list of containers."""

    id: str
    name: str
    app_id: str
    role: str
    replica: int
    status: str
    exit_code: int | None
    """``None`` while it has none, or the list does not tell."""
    image_id: str

    @property
    def ended(self) -> bool:
        return self.status in ("exited", "dead")


@dataclass(frozen=True)
class Details:
    """What only Docker's record of a single container says."""

    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""
    """Why the container could not be started."""
    finished: str = ""
    """Time as Docker writes it, in UTC: later ones sort behind."""
    restarts: int = 0
    max_restarts: int = 0
    memory_bytes: int = 0
    """Limit; 0 for none."""


def parse_container(row: Mapping[str, Any]) -> Container | None:
    """Reads a row of the list; ``None`` if it is not one of ours after all."""
    labels = row.get("Labels") or {}
    replica = labels.get(LABEL_REPLICA_ID, "")
    if not (replica.isascii() and replica.isdigit()) or LABEL_ROLE_NAME not in labels:
        return None
    names = [name[1:] for name in row.get("Names") or () if name.count("/") == 1]
    return Container(
        id=row["Id"],
        name=names[0] if names else row["Id"][:12],
        app_id=labels.get(LABEL_APP_ID, ""),
        role=labels[LABEL_ROLE_NAME],
        replica=int(replica),
        status=row.get("State", ""),
        exit_code=parse_exit_code(row.get("Status", "")),
        image_id=row.get("ImageID", ""),
    )


def parse_exit_code(status: str) -> int | None:
    """Reads ``Exited (137) 2 hours ago``; anything else says nothing.

    >>> parse_exit_code("Exited (137) 2 hours ago")
    137
    """
    head, bracket, rest = status.partition("(")
    code = rest.partition(")")[0]
    if head.strip() != "Exited" or not bracket or not code.isdigit():
        return None
    return int(code)


def parse_details(record: Mapping[str, Any]) -> Details:
    """Reads what ``inspect`` says of one container."""
    state = record.get("State") or {}
    host = record.get("HostConfig") or {}
    policy = host.get("RestartPolicy") or {}
    return Details(
        exit_code=state.get("ExitCode") or 0,
        oom_killed=bool(state.get("OOMKilled")),
        error=state.get("Error") or "",
        finished=state.get("FinishedAt") or "",
        restarts=record.get("RestartCount") or 0,
        max_restarts=policy.get("MaximumRetryCount") or 0,
        memory_bytes=host.get("Memory") or 0,
    )


def container_state(container: Container, cancelled: Iterable[str] = ()) -> AppState:
    """State of a replica.

    Args:
        cancelled: short ids of the containers that a cancel was meant for.
    """
    if container.status in ("exited", "dead", "created") and container.id[:12] in cancelled:
        return AppState.CANCELLED
    if container.status == "exited":
        return AppState.SUCCEEDED if container.exit_code == 0 else AppState.FAILED
    return CONTAINER_STATE.get(container.status, AppState.UNKNOWN)


def app_state(states: Sequence[AppState]) -> AppState:
    """State of an app from those of its replicas: that of the first live one, if there is any."""
    for state in states:
        if not is_terminal(state):
            return state
    for state in (AppState.CANCELLED, AppState.FAILED):
        if state in states:
            return state
    return AppState.SUCCEEDED


def by_role(containers: Sequence[Container]) -> dict[str, list[Container]]:
    """The containers of an app in the order of its roles and replicas.

    Args:
        containers: in Docker's order, the one that was created last first. Of each role replica 0
            is created first, role after role.
    """
    roles: dict[str, list[Container]] = {}
    for container in reversed(containers):
        roles.setdefault(container.role, []).append(container)
    firsts = {c.role: None for c in reversed(containers) if c.replica == 0}
    return {
        role: sorted(roles[role], key=lambda c: c.replica)
        for role in dict.fromkeys([*firsts, *roles])
    }


def describe_exit(details: Details) -> str:
    """How a container ended, in words."""
    code = details.exit_code
    if details.error:
        return f"could not be started: {details.error}"
    if details.oom_killed:
        limit = f" of {details.memory_bytes >> 20} MB" if details.memory_bytes else ""
        return (
            f"was killed because it used more memory than its limit{limit} "
            f"(exit code {code}); raise the role's `memMB`"
        )
    if code > 128:
        name = _signal_name(code - 128)
        if name:
            return f"was ended by signal {code - 128} ({name}, exit code {code})"
    if code == 127:
        return "exited with code 127: a command was not found"
    if code == 126:
        return "exited with code 126: a command could not be executed"
    return f"exited with code {code}"


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def parse_epoch_s(moment: str) -> int:
    """Seconds since the epoch of a time as Docker writes it; 0 if it is none."""
    from datetime import datetime, timezone

    try:
        parsed = datetime.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return 0
    return max(0, int(parsed.replace(tzinfo=timezone.utc).timestamp()))


def failure_json(details: Details) -> str:
    """The failure of a replica in the shape of an error file."""
    return json.dumps(
        {
            "message": describe_exit(details),
            "errorCode": details.exit_code,
            "timestamp": parse_epoch_s(details.finished),
        }
    )


def traceback_json(details: Details, traceback: str) -> str:
    """A traceback that a replica printed, in the shape of an error file."""
    message = {
        "message": traceback.strip().split("\n")[-1],
        "errorCode": details.exit_code,
        "extraInfo": {"py_callstack": traceback, "timestamp": parse_epoch_s(details.finished)},
    }
    return json.dumps({"message": message})


def build_response(
    app_id: str,
    roles: Mapping[str, Sequence[Container]],
    details: Mapping[str, Details],
    cancelled: Iterable[str],
    images: Mapping[str, str],
) -> DescribeAppResponse:
    """The answer of ``describe``.

    Args:
        details: by id, at least of the containers that failed.
        images: name of each image, by its id.
    """
    statuses: list[RoleStatus] = []
    found: list[Role] = []
    failed: list[tuple[str, Container]] = []
    for name, containers in roles.items():
        replicas = []
        for container in containers:
            state = container_state(container, cancelled)
            error = NONE
            if state is AppState.FAILED:
                known = details.get(container.id, _NO_DETAILS)
                error = failure_json(known)
                failed.append((known.finished, container))
            replicas.append(
                ReplicaStatus(
                    id=container.replica,
                    state=state,
                    role=name,
                    hostname=container.name,
                    structured_error_msg=error,
                )
            )
        statuses.append(RoleStatus(role=name, replicas=replicas))
        image = images.get(containers[0].image_id, UNKNOWN_IMAGE)
        found.append(Role(name=name, image=image, num_replicas=len(containers)))
    response = DescribeAppResponse(
        app_id=app_id,
        state=app_state([r.state for status in statuses for r in status.replicas]),
        num_restarts=sum(known.restarts for known in details.values()),
        roles_statuses=statuses,
        roles=found,
    )
    if failed:
        first = min(failed, key=lambda item: item[0])[1]
        known = details.get(first.id, _NO_DETAILS)
        response.msg = f"replica {first.role}/{first.replica} {describe_exit(known)}"
        response.structured_error_msg = failure_json(known)
    elif response.state is AppState.CANCELLED:
        response.msg = "cancelled"
    return response


_NO_DETAILS = Details(exit_code=1)
