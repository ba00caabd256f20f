"""The types that a scheduler's methods return, and its declared features."""

from enum import Enum

from torchx._startup.dataclass import field, light_dataclass
from torchx.specs.api import NONE, AppState, RetryPolicy, Role, RoleStatus


class Stream(str, Enum):
    """The output stream of a replica to read."""

    STDOUT = "stdout"
    STDERR = "stderr"
    COMBINED = "combined"


@light_dataclass
class DescribeAppResponse:
    """State, roles and replicas of an app."""

    app_id: str = "<NOT_SET>"
    state: AppState = AppState.UNSUBMITTED
    num_restarts: int = -1
    msg: str = NONE
    structured_error_msg: str = NONE
    ui_url: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    roles_statuses: list[RoleStatus] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)


@light_dataclass
class ListAppResponse:
    """An app in a list. ``Runner.list`` fills in the handle."""

    app_id: str
    state: AppState
    app_handle: str = "<NOT_SET>"
    name: str = ""
    created_ns: int | None = None
    """When it was launched, in nanoseconds since the epoch; ``None`` if unknown."""
    replicas: tuple[int, int] | None = None
    """Number of replicas that run or have succeeded, and of all; ``None`` if unknown."""
    times_ns: tuple[int, int] | None = None
    """First start and last end of its replicas; 0 for an end still to come."""

    def __hash__(self) -> int:
        return hash((self.app_id, self.app_handle, self.state))


@light_dataclass(frozen=True)
class SchedulerFeatures:
    """The features of a scheduler. Requests for undeclared ones are refused with an exception."""

    logs: bool = True
    tail: bool = True
    """``log_iter(should_tail=True)`` follows the output until the app ends."""
    separate_streams: bool = False
    """Stdout and stderr can be read apart."""
    log_time_range: bool = False
    """Lines have times: ``since`` and ``until`` of ``log_iter`` are honoured."""
    list: bool = True
    delete_forgets: bool = False
    """A deleted app is unknown afterwards; without this ``delete`` only cancels."""
    durable: bool = False
    """Apps are visible from other processes and after the one that launched them."""
    replica_statuses: bool = False
    exit_codes: bool = False
    retries: frozenset[RetryPolicy] = frozenset()
    """Supported policies for ``Role.max_retries``."""
    multi_role: bool = True
    min_replicas: bool = False
    mounts: bool = False
    event_wait: bool = False
    """``wait_for_change`` returns when something changes, before its timeout."""
    attempts: bool = False
    """The logs of each attempt are kept."""
    verify_logs: bool = False
    """Missing lines of a log are detected."""
    ends_on_failure: bool = False
    """The backend itself ends the other replicas when one has failed for good and the option
    ``on_failure`` says ``end``; without this ``Runner.wait`` does."""
    execute: bool = False
    """Commands can be run in a running replica: the scheduler has the hook ``execute``."""
    port_forward: bool = False
    """Ports of a replica can be reached from here: it has the hook ``open_port``."""
    left_out: frozenset[str] = frozenset()
    """Fields of a role that are accepted and have no effect here, such as ``mounts``."""


class LogBlock:
    """Whole lines of one replica; only a replica's last line may lack its newline."""

    __slots__ = ("attempt", "replica", "role", "text")

    def __init__(self, role: str, replica: int, attempt: int, text: str) -> None:
        self.role = role
        self.replica = replica
        self.attempt = attempt
        self.text = text

    def __repr__(self) -> str:
        where = f"{self.role!r}, {self.replica}, {self.attempt}"
        return f"LogBlock({where}, {self.text!r})"


@light_dataclass
class FailedReplica:
    """A failed replica: how it failed, its last lines and log."""

    role: str
    replica: int
    attempt: int
    exit_code: int | None
    """Negative for a signal; ``None`` if the backend does not report it."""
    reason: str
    log_path: str | None
    last_lines: list[str]
    error: str = ""
    """Its exception, with rank and place, in one line; empty if unknown."""


@light_dataclass
class LogReport:
    """Completeness of the log of one stream of one attempt of a replica."""

    role: str
    replica: int
    attempt: int
    stream: Stream
    lines: int
    bytes: int
    complete: bool
    problem: str | None
