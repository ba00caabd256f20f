"""States of Slurm in the words of TorchX, and native records as ``DescribeAppResponse``."""

import json
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx.schedulers.api import DescribeAppResponse
from torchx.specs.api import NONE, AppState, ReplicaStatus, Resource, Role, RoleStatus, is_terminal

from ._index import Progress, RoleNote

SLURM_STATES: Mapping[str, AppState] = {
    "BOOT_FAIL": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
    "COMPLETED": AppState.SUCCEEDED,
    "DEADLINE": AppState.FAILED,
    "FAILED": AppState.FAILED,
    "NODE_FAIL": AppState.FAILED,
    "OUT_OF_MEMORY": AppState.FAILED,
    "PENDING": AppState.PENDING,
    "PREEMPTED": AppState.FAILED,
    "RUNNING": AppState.RUNNING,
    "REQUEUED": AppState.PENDING,
    "RESIZING": AppState.PENDING,
    "REVOKED": AppState.FAILED,
    "SUSPENDED": AppState.PENDING,
    "TIMEOUT": AppState.FAILED,
    # flags, which some versions tell in place of the state
    "COMPLETING": AppState.RUNNING,
    "CONFIGURING": AppState.PENDING,
    "EXPEDITING": AppState.PENDING,
    "LAUNCH_FAILED": AppState.PENDING,
    "POWER_UP_NODE": AppState.PENDING,
    "RECONFIG_FAIL": AppState.FAILED,
    "REQUEUE_FED": AppState.PENDING,
    "REQUEUE_HOLD": AppState.PENDING,
    "RESV_DEL_HOLD": AppState.PENDING,
    "SIGNALING": AppState.RUNNING,
    "SPECIAL_EXIT": AppState.PENDING,
    "STAGE_OUT": AppState.RUNNING,
    "STOPPED": AppState.PENDING,
    "UPDATE_DB": AppState.RUNNING,
}
"""What TorchX calls the states of Slurm; NeMo-Run looks for the first key a state begins with."""


def appstate_from_slurm_state(slurm_state: str) -> AppState:
    """The state of TorchX; ``UNKNOWN`` for one that this version does not know.

    >>> appstate_from_slurm_state("CANCELLED by 1000"), appstate_from_slurm_state("COMPLETED+")
    (CANCELLED (6), SUCCEEDED (4))
    """
    words = slurm_state.split()
    return SLURM_STATES.get(words[0].rstrip("+"), AppState.UNKNOWN) if words else AppState.UNKNOWN


def get_appstate_from_job(job: Mapping[str, Any]) -> AppState:
    """The state of a job of ``squeue --json``, a text up to 23.02 and a list later."""
    return appstate_from_slurm_state(native_state(job))


def native_state(job: Mapping[str, Any]) -> str:
    """The state itself, without flags."""
    state = job.get("job_state")
    if isinstance(state, list):
        state = state[0] if state else ""
    return str(state or "")


@dataclass(frozen=True)
class Component:
    """One component of a heterogeneous job, or a job of one component."""

    name: str
    """Name of the component: ``<role>-<digits>``."""
    state: AppState
    native: str = ""
    """The state in Slurm's words."""
    reason: str = ""
    hosts: tuple[str, ...] = ()
    resource: Resource | None = None
    """What was allocated on a node; ``None`` if that is not told."""
    user: str = ""

    @property
    def role(self) -> str | None:
        """Name of the role; ``None`` if it is no component of TorchX."""
        role, _, digits = self.name.rpartition("-")
        return role if role and digits.isascii() and digits.isdecimal() else None


@dataclass(frozen=True)
class NativeJob:
    """What squeue or sacct tells of a job."""

    app_id: str
    components: tuple[Component, ...]
    work_dir: str = ""
    command: str = ""
    restarts: int = -1
    """-1 if it is not told."""

    @property
    def ours(self) -> "tuple[Component, ...]":
        """The components that belong to roles."""
        return tuple(c for c in self.components if c.role is not None)

    @property
    def state(self) -> AppState:
        """The state of the job by those of its components."""
        return aggregate(c.state for c in self.components)


_ORDER = (
    AppState.FAILED,
    AppState.CANCELLED,
    AppState.RUNNING,
    AppState.PENDING,
    AppState.UNKNOWN,
    AppState.SUCCEEDED,
)


def aggregate(states: Iterable[AppState]) -> AppState:
    """A failure is that of all, and so on down to success, which all must have.

    >>> aggregate([AppState.SUCCEEDED, AppState.FAILED, AppState.RUNNING])
    FAILED (5)
    """
    found = set(states)
    return next((state for state in _ORDER if state in found), AppState.UNKNOWN)


@dataclass
class Shown:
    """What is told of a job: its native record, and what its own notes add."""

    app_id: str
    native: NativeJob | None
    progress: Progress | None = None
    roles: list[RoleNote] = field(default_factory=list)
    """Empty if there is no record."""


def response(shown: Shown) -> DescribeAppResponse:
    """The answer of ``describe``."""
    native, progress = shown.native, shown.progress
    if native is not None:
        state = native.state if native.components else AppState.UNKNOWN
    elif progress is not None and progress.end is not None:
        state = AppState.FAILED if progress.end else AppState.SUCCEEDED
    else:
        state = AppState.UNKNOWN
    roles = _roles(shown)
    statuses = _statuses(shown, roles, state)
    restarts = native.restarts if native is not None else -1
    if progress is not None:
        restarts = max(restarts, progress.attempt)
    return DescribeAppResponse(
        app_id=shown.app_id,
        state=state,
        num_restarts=restarts,
        msg=_message(shown, roles, state),
        structured_error_msg=_error(shown, state),
        roles_statuses=statuses,
        roles=roles,
    )


def _roles(shown: Shown) -> list[Role]:
    resources = {}
    for component in shown.native.ours if shown.native else ():
        resources[component.role] = component.resource
    if shown.roles:
        found = []
        for index, note in enumerate(shown.roles):
            hosts = shown.progress.hosts.get(index) if shown.progress else None
            count = len(hosts) if note.elastic and hosts else note.replicas
            role = Role(note.name, note.image, num_replicas=count, entrypoint=note.entrypoint)
            by_component = resources.get(_safe(note.name))
            if by_component is not None:
                role.resource = by_component
            found.append(role)
        return found
    if shown.native is None:
        return []
    counts: dict[str, int] = {}
    for component in shown.native.ours:
        name = component.role or ""
        counts[name] = counts.get(name, 0) + max(len(component.hosts), 1)
    roles = []
    for name, count in counts.items():
        role = Role(
            name, shown.native.work_dir, num_replicas=count, entrypoint=shown.native.command
        )
        by_component = resources.get(name)
        if by_component is not None:
            role.resource = by_component
        roles.append(role)
    return roles


def _statuses(shown: Shown, roles: list[Role], state: AppState) -> list[RoleStatus]:
    progress = shown.progress
    hosts: dict[str, list[str]] = {}
    states: dict[str, list[AppState]] = {}
    for component in shown.native.ours if shown.native else ():
        name = component.role or ""
        hosts.setdefault(name, []).extend(component.hosts or ("",))
        states.setdefault(name, []).extend([component.state] * max(len(component.hosts), 1))
    statuses = []
    for index, role in enumerate(roles):
        safe = _safe(role.name)
        of_role = (progress.hosts.get(index) if progress else None) or hosts.get(safe) or []
        own = states.get(safe) or []
        replicas = []
        for k in range(role.num_replicas):
            code = progress.codes.get((index, k)) if progress else None
            fallback = own[k] if k < len(own) else (own[0] if own else state)
            replicas.append(
                ReplicaStatus(
                    id=k,
                    role=role.name,
                    state=_replica_state((index, k), fallback, state, progress),
                    hostname=(progress.host_of.get((index, k)) if progress else None)
                    or _host(k, role.num_replicas, of_role),
                    structured_error_msg=_replica_error(progress, index, k, code),
                )
            )
        statuses.append(RoleStatus(role=role.name, replicas=replicas))
    return statuses


def _host(k: int, replicas: int, hosts: list[str]) -> str:
    """The host of a replica; empty if several share hosts and it is not known which.

    >>> _host(3, 4, ["n1"]), _host(1, 2, ["n1", "n2"]), _host(1, 4, ["n1", "n2"])
    ('n1', 'n2', '')
    """
    if len(hosts) == 1:
        return hosts[0]
    return hosts[k] if replicas <= len(hosts) else ""


def _safe(name: str) -> str:
    from ._request import safe_name

    return safe_name(name)


def _replica_state(
    key: "tuple[int, int]", by_component: AppState, app: AppState, progress: Progress | None
) -> AppState:
    code = progress.codes.get(key) if progress else None
    if code == 0:
        return AppState.SUCCEEDED
    if code is not None:
        return AppState.CANCELLED if progress and progress.was_ended(key) else AppState.FAILED
    if not is_terminal(app):
        return by_component
    if progress is not None and (progress.failures or app is AppState.CANCELLED):
        return AppState.CANCELLED  # ended with the job, before it could tell
    return by_component if is_terminal(by_component) else app


def _replica_error(progress: Progress | None, index: int, k: int, code: int | None) -> str:
    if progress is None or not code:
        return NONE
    return progress.error_of(index, k) or exit_message(code, progress.ended_s((index, k)))


def _message(shown: Shown, roles: list[Role], state: AppState) -> str:
    parts = []
    first = shown.progress.first_failure if shown.progress else None
    if first is not None and state is AppState.FAILED and shown.progress is not None:
        index, k = first
        code = shown.progress.codes[first]
        name = roles[index].name if index < len(roles) else str(index)
        parts.append(f"replica {k} of role `{name}` {describe_code(code)}")
    if shown.native is not None:
        told = []
        for component in shown.native.components:
            text = component.native
            if component.reason and component.reason != "None":
                text += f" ({component.reason})"
            if text and text not in told:
                told.append(text)
        parts += told
    return "; ".join(parts) or NONE


def _error(shown: Shown, state: AppState) -> str:
    progress = shown.progress
    if state is not AppState.FAILED or progress is None or progress.first_failure is None:
        return NONE
    index, k = progress.first_failure
    return _replica_error(progress, index, k, progress.codes[index, k])


def signed(code: int) -> int:
    """The code of a shell as Python gives it: negative for a signal.

    >>> signed(137), signed(3)
    (-9, 3)
    """
    return 128 - code if 128 < code <= 192 else code


def describe_code(code: int) -> str:
    """How a replica ended, in words.

    >>> describe_code(137)
    'was killed by SIGKILL'
    """
    number = signed(code)
    if number >= 0:
        return f"exited with code {number}"
    try:
        return f"was killed by {signal.Signals(-number).name}"
    except ValueError:
        return f"was killed by signal {-number}"


def exit_message(code: int, ended_s: int) -> str:
    """The failure of a replica that left no error file, in the shape of one."""
    words = describe_code(code)
    return json.dumps({"message": words, "errorCode": signed(code), "timestamp": ended_s})
