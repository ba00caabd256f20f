"""What a scheduler is: the interface, what it answers, and small functions for log lines."""

import abc
import time
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers._structured_opts import StructuredOpts
from torchx.specs.api import (
    NONE,
    NULL_RESOURCE,
    AppDef,
    AppDryRunInfo,
    AppState,
    CfgVal,
    InvalidRunConfigException,
    RetryPolicy,
    Role,
    RoleStatus,
    Workspace,
    runopts,
)
from torchx.workspace.api import WorkspaceMixin

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "DAYS_IN_2_WEEKS",
    "NONE",
    "NULL_RESOURCE",
    "AppDef",
    "AppDryRunInfo",
    "AppState",
    "CfgVal",
    "DescribeAppResponse",
    "FailedReplica",
    "InvalidRunConfigException",
    "ListAppResponse",
    "LogBlock",
    "LogReport",
    "Role",
    "RoleStatus",
    "Scheduler",
    "SchedulerFeatures",
    "Stream",
    "StructuredOpts",
    "T",
    "Workspace",
    "WorkspaceMixin",
    "filter_regex",
    "runopts",
    "split_lines",
    "split_lines_iterator",
]

DAYS_IN_2_WEEKS = 14

T = TypeVar("T", bound=Mapping[str, CfgVal])


class Stream(str, Enum):
    """What of a replica's output is read."""

    STDOUT = "stdout"
    STDERR = "stderr"
    COMBINED = "combined"


@dataclass
class DescribeAppResponse:
    """What a scheduler knows of an app."""

    app_id: str = "<NOT_SET>"
    state: AppState = AppState.UNSUBMITTED
    num_restarts: int = -1
    msg: str = NONE
    structured_error_msg: str = NONE
    ui_url: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    roles_statuses: list[RoleStatus] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)


@dataclass
class ListAppResponse:
    """One app in a list. ``Runner.list`` fills in the handle."""

    app_id: str
    state: AppState
    app_handle: str = "<NOT_SET>"
    name: str = ""

    def __hash__(self) -> int:
        return hash((self.app_id, self.app_handle, self.state))


@dataclass(frozen=True)
class SchedulerFeatures:
    """What a scheduler can do. What it does not declare, it must refuse with an exception."""

    logs: bool = True
    tail: bool = True
    """``log_iter(should_tail=True)`` follows the output until the app ends."""
    separate_streams: bool = False
    """Stdout and stderr can be read apart."""
    log_time_range: bool = False
    """``since`` and ``until`` of ``log_iter`` are honoured."""
    list: bool = True
    delete_forgets: bool = False
    """A deleted app is unknown afterwards; elsewhere ``delete`` is ``cancel``."""
    durable: bool = False
    """Apps are visible from other processes and after the one that launched them."""
    replica_statuses: bool = False
    exit_codes: bool = False
    retries: frozenset[RetryPolicy] = frozenset()
    """Policies by which ``Role.max_retries`` is honoured."""
    multi_role: bool = True
    min_replicas: bool = False
    mounts: bool = False
    event_wait: bool = False
    """``wait_for_change`` returns when something happens, not when its time is over."""
    attempts: bool = False
    """The logs of each attempt are kept."""


class LogBlock:
    """Whole lines of one replica; only the very last line of a replica may lack its newline."""

    __slots__ = ("attempt", "replica", "role", "text")

    def __init__(self, role: str, replica: int, attempt: int, text: str) -> None:
        self.role = role
        self.replica = replica
        self.attempt = attempt
        self.text = text

    def __repr__(self) -> str:
        where = f"{self.role!r}, {self.replica}, {self.attempt}"
        return f"LogBlock({where}, {self.text!r})"


@dataclass
class FailedReplica:
    """How a replica failed, and where to read on."""

    role: str
    replica: int
    attempt: int
    exit_code: int | None
    """Negative for a signal; ``None`` if the backend does not say."""
    reason: str
    log_path: str | None
    last_lines: list[str]


@dataclass
class LogReport:
    """Whether the log of one stream of one attempt of a replica is complete."""

    role: str
    replica: int
    attempt: int
    stream: Stream
    lines: int
    bytes: int
    complete: bool
    problem: str | None


# inside `Scheduler` the name `list` is its method
_Apps = list[ListAppResponse]
_FailedReplicas = list[FailedReplica]
_LogReports = list[LogReport]


class Scheduler(abc.ABC, Generic[T]):
    """Runs apps on one backend. ``T`` is what its options are: a mapping or a ``StructuredOpts``.

    Args:
        backend: name used in messages and given to ``Role.pre_proc``.
        session_name: groups the apps of one runner.
    """

    features: SchedulerFeatures = SchedulerFeatures()

    def __init__(self, backend: str, session_name: str) -> None:
        self.backend = backend
        self.session_name = session_name

    # -- submitting ---------------------------------------------------------------------------

    def submit(self, app: AppDef, cfg: T, workspace: str | Workspace | None = None) -> str:
        """Submits an app without the checks of ``Runner.run``; changes ``app`` in place."""
        resolved = resolve_cfg(self.run_opts(), cfg)
        if workspace:
            if not isinstance(self, WorkspaceMixin):
                msg = f"`{self.backend}` does not support workspaces, given: `{workspace}`"
                raise InvalidInput(msg)
            if isinstance(workspace, str):
                workspace = Workspace.from_str(workspace)
            app.roles[0].workspace = workspace
            self.build_workspaces(app.roles, resolved)
        return self.schedule(self.submit_dryrun(app, resolved))

    def submit_dryrun(self, app: AppDef, cfg: T) -> "AppDryRunInfo[Any]":
        """The request that would be submitted.

        Raises:
            InvalidRunConfigException: if ``cfg`` does not fit ``run_opts()``.
        """
        resolved: Any = resolve_cfg(self.run_opts(), cfg)
        if isinstance(self, WorkspaceMixin) and isinstance(resolved, Mapping):
            self.check_workspace_opts(resolved)
        opts_type = _opts_type(type(self))
        if opts_type is not None and isinstance(resolved, Mapping):
            resolved = opts_type.from_cfg(resolved)
        info = self._submit_dryrun(app, resolved)
        for role in app.roles:
            info = role.pre_proc(self.backend, info)
        info.app = app
        info.cfg = resolved
        return info

    @abc.abstractmethod
    def _submit_dryrun(self, app: AppDef, cfg: T) -> "AppDryRunInfo[Any]":
        """Renders the native request and submits nothing. ``cfg`` is resolved."""

    @abc.abstractmethod
    def schedule(self, dryrun_info: "AppDryRunInfo[Any]") -> str:
        """Submits ``dryrun_info.request`` and returns the id of the app."""

    def run_opts(self) -> runopts:
        """All options: those of the scheduler and those of its workspace builder."""
        opts = self._run_opts()
        if isinstance(self, WorkspaceMixin):
            opts.update(self.workspace_opts())
        return opts

    def _run_opts(self) -> runopts:
        """Options of the scheduler itself."""
        return runopts()

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: T) -> None:
        """Refuses what need not be built; runs before workspaces are."""

    # `cfg` is optional since clients of release 0.7 (NeMo-Run) call this without it
    def _validate(self, app: AppDef, scheduler: str, cfg: T | None = None) -> None:
        """Refuses an app that cannot run here; by default one with a role without resource."""
        for role in app.roles:
            if role.resource == NULL_RESOURCE:
                msg = (
                    f"No resource for role: {role.name} (image: {role.image})."
                    " Did you forget to attach resource to the role"
                )
                raise InvalidInput(msg)

    # -- looking ------------------------------------------------------------------------------

    @abc.abstractmethod
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """State and roles of the app; ``None`` if it is unknown or purged."""

    def describe_native(self, app_id: str) -> "AppDryRunInfo[Any] | None":
        """The native request of the app read back; ``None`` where that is not possible."""
        return None

    def exists(self, app_id: str) -> bool:
        """Whether the scheduler knows the app; a cancelled one as well."""
        return self.describe(app_id) is not None

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the state of the app may have changed, at the latest after the time."""
        time.sleep(timeout_s)

    def failed_replicas(self, app_id: str, max_lines: int = 10) -> _FailedReplicas:
        """The replicas whose latest attempt failed, the first failure first, as far as known."""
        return []

    # -- ending -------------------------------------------------------------------------------

    def cancel(self, app_id: str) -> None:
        """Asks for the end of the app and does not wait for it. An unknown app is no error."""
        if self.exists(app_id):
            self._cancel_existing(app_id)

    @abc.abstractmethod
    def _cancel_existing(self, app_id: str) -> None:
        """Cancels an app that exists."""

    def delete(self, app_id: str) -> None:
        """Removes the definition of the app, after cancelling it; elsewhere equals ``cancel``."""
        if self.exists(app_id):
            self._delete_existing(app_id)

    def _delete_existing(self, app_id: str) -> None:
        """Deletes an app that exists."""
        self._cancel_existing(app_id)

    def close(self) -> None:
        """Releases local resources. May be called again."""

    # -- logs ---------------------------------------------------------------------------------

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Lines of replica ``k`` of a role, with their newlines.

        Args:
            regex: only lines in which it is found.
            since: a time without zone is local time, here and in ``until``.
            should_tail: follow the output until the app ends, instead of what there is now.
        """
        raise self._unsupported("log_iter")

    def log_blocks(
        self,
        app_id: str,
        replicas: Sequence[tuple[str, int]] | None = None,
        *,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        attempt: int | None = None,
    ) -> Iterator[LogBlock]:
        """Output of several replicas in the order of time; of all for ``None``.

        Raises:
            UnsupportedRequest: at the call, if the scheduler cannot merge logs.
        """
        raise self._unsupported("log_blocks")

    def verify_logs(
        self, app_id: str, replicas: Sequence[tuple[str, int]] | None = None
    ) -> _LogReports:
        """Whether every line that the replicas wrote is in the logs.

        Raises:
            UnsupportedRequest: if the scheduler cannot tell.
        """
        raise self._unsupported("verify_logs")

    def _unsupported(self, method: str) -> UnsupportedRequest:
        return UnsupportedRequest(f"`{type(self).__qualname__}` does not support `{method}`")

    # last: below this line `list` is the method
    @abc.abstractmethod
    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> _Apps:
        """Apps that the scheduler sees. ``cfg`` may be ``None``."""


def filter_regex(regex: str, data: Iterable[str]) -> Iterable[str]:
    """Items in which the expression is found, lazily.

    >>> list(filter_regex("b+", ["abb", "a"]))
    ['abb']
    """
    import re

    found = re.compile(regex).search
    return (item for item in data if found(item))


def split_lines(text: str) -> list[str]:
    r"""Lines with their ``\n``; ``\r`` is left alone.

    >>> split_lines("p\nq")
    ['p\n', 'q']
    """
    if text.isascii() and not any(c in text for c in "\r\v\f\x1c\x1d\x1e"):
        return text.splitlines(keepends=True)  # twice as fast, and the same for such text
    *lines, last = text.split("\n")
    whole = [f"{line}\n" for line in lines]
    return [*whole, last] if last else whole


def split_lines_iterator(chunks: Iterable[str]) -> Iterable[str]:
    """Lines of each chunk; a line that spans two chunks comes in two pieces."""
    for chunk in chunks:
        yield from split_lines(chunk)


def resolve_cfg(opts: runopts, cfg: Any) -> Any:
    """The options in full; a client's own object in place of a mapping (NeMo-Run) is left as is."""
    if cfg is None:
        cfg = {}
    if isinstance(cfg, Mapping):
        return opts.resolve(cfg)
    if isinstance(cfg, (str, bytes, int, float, Sequence)):
        msg = (
            f"cfg must be a mapping of option names to values, given: {cfg!r}. "
            "`Runner.cfg_from_str` makes one from text"
        )
        raise InvalidInput(msg)
    return cfg


def _opts_type(cls: type) -> type[StructuredOpts] | None:
    """The ``StructuredOpts`` subclass in the first ``Scheduler[...]`` among the bases."""
    for base in cls.__mro__:
        for generic in base.__dict__.get("__orig_bases__", ()):
            if typing.get_origin(generic) is Scheduler:
                (arg,) = typing.get_args(generic)
                if not isinstance(arg, type) or typing.get_origin(arg) is not None:
                    return None
                concrete = issubclass(arg, StructuredOpts) and arg is not StructuredOpts
                return arg if concrete else None
    return None
