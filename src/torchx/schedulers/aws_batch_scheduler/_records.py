"""Parses records of jobs, field by field. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.schedulers._core.exits import from_shell
from torchx.settings import ENV_TORCHX_ROLE_NAME
from torchx.specs.api import AppState, Resource, Role, is_terminal

from ._resources import resource_from_resource_requirements

JOB_STATE: dict[str, AppState] = {
    "SUBMITTED": AppState.PENDING,
    "PENDING": AppState.PENDING,
    "RUNNABLE": AppState.PENDING,
    "STARTING": AppState.PENDING,
    "RUNNING": AppState.RUNNING,
    "SUCCEEDED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
}
DEFAULT_ROLE_NAME = "node"
CANCEL_REASON = "killed via torchx CLI"
"""Reason that we set for a job that a user cancelled; it can be read back."""
END_REASON = "ended by torchx after replica"
"""Prefix of the reason for a job that we end after a failure; the replica's name follows."""
BATCH_ENDED = ("Canceled by JobStateTimeLimit", "Terminated by JobStateTimeLimit")
"""Prefixes of the reason why the queue itself has ended a job that waited for too long."""
DEFAULT_LOG_GROUP = "/aws/batch/job"

_SAYS_NOTHING = ("Essential container in task exited",)

Record = Mapping[str, Any]
"""The record of a job from DescribeJobs."""


def state_of(status: object) -> AppState:
    """Returns the state of a job or a node; ``UNKNOWN`` for a new status."""
    return JOB_STATE.get(str(status), AppState.UNKNOWN)


@dataclass(frozen=True)
class Node:
    """A container of a job: the job's own, or that of one of its nodes."""

    record: Record

    @property
    def state(self) -> AppState:
        """The state as the service reports it."""
        return state_of(self.record.get("status"))

    @property
    def container(self) -> Record:
        """The container of the latest attempt."""
        found: Record = self.record.get("container") or {}
        return found

    @property
    def past_attempts(self) -> Sequence[Record]:
        """Attempts that have ended."""
        over = is_terminal(self.state)
        return [a for a in self.record.get("attempts") or () if over or a.get("stoppedAt")]

    @property
    def attempt(self) -> int:
        """Number of the latest attempt, from 0."""
        ended = len(self.past_attempts)
        return max(ended - 1, 0) if is_terminal(self.state) else ended

    @property
    def exit_code(self) -> int | None:
        """As from ``wait(2)``; ``None`` before the end."""
        if not is_terminal(self.state):
            return None
        for container in (self.container, self._last_attempt.get("container") or {}):
            if container.get("exitCode") is not None:
                return from_shell(int(container["exitCode"]))
        return 0 if self.state is AppState.SUCCEEDED else None

    @property
    def _last_attempt(self) -> Record:
        return self.past_attempts[-1] if self.past_attempts else {}

    @property
    def container_reason(self) -> str:
        """The reason from ECS for the container, such as ``OutOfMemoryError: ...``."""
        container = self._last_attempt.get("container") or {}
        return str(self.container.get("reason") or container.get("reason") or "")

    @property
    def reason(self) -> str:
        """Why it waits or how it ended, from the service; empty if not informative."""
        words = [self.container_reason, told_reason(self.record)]
        return "; ".join(dict.fromkeys(word for word in words if word))

    @property
    def host(self) -> str:
        """Address of the host, else the name of its instance or task."""
        places = (self.container, self._last_attempt.get("container") or {})
        for container in places:
            for interface in container.get("networkInterfaces") or ():
                if interface.get("privateIpv4Address"):
                    return str(interface["privateIpv4Address"])
        for key in ("containerInstanceArn", "taskArn"):
            for container in places:
                if container.get(key):
                    return str(container[key]).rpartition("/")[2]
        return ""

    @property
    def streams(self) -> list[tuple[int, str]]:
        """Number and log stream of each attempt that has one."""
        names = [(a.get("container") or {}).get("logStreamName") for a in self.past_attempts]
        current = self.container.get("logStreamName")
        if current and current not in names:
            names = [*names[: self.attempt], *[None] * (self.attempt - len(names)), current]
        return [(i, str(name)) for i, name in enumerate(names) if name]

    def time_ns(self, key: str) -> int | None:
        """A time of the record, which counts milliseconds."""
        value = self.record.get(key) or self._last_attempt.get(key)
        return int(value) * 1_000_000 if value else None


def told_reason(record: Record) -> str:
    """Returns the service's reason for a job, unless it is not informative or our own."""
    words = str(record.get("statusReason") or "")
    if words.startswith((*_SAYS_NOTHING, CANCEL_REASON, END_REASON)):
        return ""
    return words


# -- roles ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RolePlace:
    """A role that was read back, and its first node."""

    role: Role
    first: int


def is_multinode(job: Record) -> bool:
    """Returns True if a job has nodes."""
    return bool((job.get("nodeProperties") or {}).get("nodeRangeProperties"))


def read_roles(job: Record) -> list[RolePlace]:
    """Returns the roles of an app, from its node groups or its container."""
    if not is_multinode(job):
        return [RolePlace(_role(job.get("container") or {}, 1, DEFAULT_ROLE_NAME), 0)]
    properties = job["nodeProperties"]
    count = int(properties.get("numNodes") or 1)
    found: list[RolePlace] = []
    taken: set[str] = set()
    for i, group in enumerate(properties["nodeRangeProperties"]):
        first, last = parse_start_and_end_idx(group["targetNodes"], count)
        name = DEFAULT_ROLE_NAME if DEFAULT_ROLE_NAME not in taken else f"{DEFAULT_ROLE_NAME}-{i}"
        role = _role(group.get("container") or {}, last - first + 1, name)
        taken.add(role.name)
        found.append(RolePlace(role, first))
    return found


def _role(container: Record, replicas: int, name: str) -> Role:
    env = {str(v["name"]): str(v.get("value", "")) for v in container.get("environment") or ()}
    command = [str(word) for word in container.get("command") or ()]
    return Role(
        name=env.get(ENV_TORCHX_ROLE_NAME, name),
        num_replicas=replicas,
        image=str(container.get("image") or ""),
        entrypoint=command[0] if command else "<MISSING>",
        args=command[1:],
        env=env,
        resource=_resource(container),
    )


def _resource(container: Record) -> Resource:
    requirements = container.get("resourceRequirements") or ()
    if {"VCPU", "MEMORY"} <= {r.get("type") for r in requirements}:
        return resource_from_resource_requirements(requirements)
    return Resource(
        cpu=int(container.get("vcpus") or -1), gpu=0, memMB=int(container.get("memory") or -1)
    )


def parse_start_and_end_idx(target_nodes: str, num_nodes: int) -> tuple[int, int]:
    """Parses first and last node of a group: ``a:b``, ``:b``, ``a:`` or ``a``.

    >>> parse_start_and_end_idx("2:", 5), parse_start_and_end_idx("3", 5)
    ((2, 4), (3, 3))
    """
    first, colon, last = target_nodes.partition(":")
    begin = int(first) if first else 0
    if not colon:
        return begin, begin
    return begin, int(last) if last else num_nodes - 1


def parse_num_replicas(target_nodes: str, num_nodes: int) -> int:
    """Returns the number of nodes of a group.

    >>> parse_num_replicas(":3", 8)
    4
    """
    first, last = parse_start_and_end_idx(target_nodes, num_nodes)
    return last - first + 1
