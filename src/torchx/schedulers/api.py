"""The interface of schedulers: methods, the hooks from which they are derived, and responses."""

import abc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx._startup import late_names
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, TorchXError, UnsupportedRequest
from torchx.schedulers import SCHEDULER_ALIASES
from torchx.schedulers._core.checks import (
    check_app,
    ends_on_failure,
    fields_left_out,
)
from torchx.schedulers._core.looking import forget, one_look, seen
from torchx.schedulers._core.responses import (
    DescribeAppResponse,
    FailedReplica,
    ListAppResponse,
    LogBlock,
    LogReport,
    SchedulerFeatures,
    Stream,
)
from torchx.schedulers._structured_opts import StructuredOpts, opts_type_of
from torchx.schedulers._structured_opts import resolve_cfg as resolve_cfg
from torchx.specs.api import (
    NONE,
    NULL_RESOURCE,
    AppDef,
    AppDryRunInfo,
    AppState,
    CfgVal,
    InvalidRunConfigException,
    Role,
    RoleStatus,
    Workspace,
    runopts,
)
from torchx.workspace.api import WorkspaceMixin

if TYPE_CHECKING:
    from datetime import datetime

    from torchx._retry import with_retries
    from torchx.schedulers._core.causes import Explanation, Rule
    from torchx.schedulers._core.checkups import Checkup, Configured
    from torchx.schedulers._core.executing import ExecRequest, ReplicaNotRunning
    from torchx.schedulers._core.exits import from_shell, one_line_json
    from torchx.schedulers._core.log_query import LogChunk, LogKey, LogQuery
    from torchx.schedulers._core.logs import (
        filter_regex,
        merge_by_time,
        split_lines,
        split_lines_iterator,
    )
    from torchx.schedulers._core.ports import PortConnection
    from torchx.schedulers._core.reading import LogReader
    from torchx.schedulers._core.snapshot import (
        AppSnapshot,
        ReplicaKey,
        ReplicaSnapshot,
        describe_failure,
    )

__all__ = [
    "DAYS_IN_2_WEEKS",
    "NONE",
    "NULL_RESOURCE",
    "AppDef",
    "AppDryRunInfo",
    "AppSnapshot",
    "AppState",
    "CfgVal",
    "DescribeAppResponse",
    "ExecRequest",
    "FailedReplica",
    "InvalidRunConfigException",
    "ListAppResponse",
    "LogBlock",
    "LogChunk",
    "LogKey",
    "LogQuery",
    "LogReport",
    "ReplicaKey",
    "ReplicaNotRunning",
    "ReplicaSnapshot",
    "Role",
    "RoleStatus",
    "Scheduler",
    "SchedulerFeatures",
    "Stream",
    "StructuredOpts",
    "T",
    "Workspace",
    "WorkspaceMixin",
    "describe_failure",
    "ends_on_failure",
    "filter_regex",
    "from_shell",
    "merge_by_time",
    "one_line_json",
    "one_look",
    "runopts",
    "split_lines",
    "split_lines_iterator",
    "with_retries",
]

_LATE = {
    "AppSnapshot": "torchx.schedulers._core.snapshot:AppSnapshot",
    "ReplicaKey": "torchx.schedulers._core.snapshot:ReplicaKey",
    "ReplicaSnapshot": "torchx.schedulers._core.snapshot:ReplicaSnapshot",
    "describe_failure": "torchx.schedulers._core.snapshot:describe_failure",
    "from_shell": "torchx.schedulers._core.exits:from_shell",
    "one_line_json": "torchx.schedulers._core.exits:one_line_json",
    "ExecRequest": "torchx.schedulers._core.executing:ExecRequest",
    "ReplicaNotRunning": "torchx.schedulers._core.executing:ReplicaNotRunning",
    "LogChunk": "torchx.schedulers._core.log_query:LogChunk",
    "LogKey": "torchx.schedulers._core.log_query:LogKey",
    "LogQuery": "torchx.schedulers._core.log_query:LogQuery",
    "filter_regex": "torchx.schedulers._core.logs:filter_regex",
    "merge_by_time": "torchx.schedulers._core.logs:merge_by_time",
    "split_lines": "torchx.schedulers._core.logs:split_lines",
    "split_lines_iterator": "torchx.schedulers._core.logs:split_lines_iterator",
    "with_retries": "torchx._retry:with_retries",
}
"""Names for authors of schedulers, and the modules that they come from when they are first used:
what a launch does not need.
"""

if not TYPE_CHECKING:
    __getattr__, __dir__ = late_names(__name__, _LATE)

logger = get_logger(__name__)

DAYS_IN_2_WEEKS = 14

T = TypeVar("T", bound=Mapping[str, CfgVal])

# inside `Scheduler` the name `list` is its method
_Apps = list[ListAppResponse]
_FailedReplicas = list[FailedReplica]
_LogReports = list[LogReport]


class Scheduler(abc.ABC, Generic[T]):
    """Runs apps on one backend. ``T`` is the type of its options: a mapping or ``StructuredOpts``.

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
        """Returns the request that would be submitted.

        Raises:
            InvalidRunConfigException: if ``cfg`` does not fit ``run_opts()``.
        """
        resolved: Any = resolve_cfg(self.run_opts(), cfg)
        if isinstance(self, WorkspaceMixin) and isinstance(resolved, Mapping):
            self.check_workspace_opts(resolved)
        features = self._check_features(app, resolved)
        if features is not None:
            for text in fields_left_out(app, features):
                logger.warning("`%s` leaves out %s", self._shown_name, text)
        opts_type = opts_type_of(type(self), Scheduler)
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
        """Returns all options: those of the scheduler and those of its workspace builder."""
        opts = self._run_opts()
        if isinstance(self, WorkspaceMixin):
            opts.update(self.workspace_opts())
        return opts

    def _run_opts(self) -> runopts:
        """Returns the options of the scheduler itself."""
        return runopts()

    def _features_with(self, cfg: T) -> SchedulerFeatures:
        """Returns the features of an app with these options; by default the declared features."""
        return self.features

    def _check_features(self, app: AppDef, cfg: T) -> SchedulerFeatures | None:
        """Refuses what this scheduler cannot do; ``None`` if it declares no features."""
        if self.features is Scheduler.features:  # as schedulers of other packages may
            return None
        features = self._features_with(cfg)
        check_app(app, features, self._shown_name)
        return features

    @property
    def _shown_name(self) -> str:
        return SCHEDULER_ALIASES.get(self.backend, self.backend)

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: T) -> None:
        """Refuses invalid apps before workspaces are built, which may take minutes."""
        self._check_features(app, cfg)

    # `cfg` is optional because clients of release 0.7 (NeMo-Run) call this without it
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

    def look(self, app_id: str) -> "AppSnapshot | None":
        """Hook: queries the backend once about one app; ``None`` if it does not know the app.

        ``describe``, ``exists``, ``failed_replicas``, ``cancel``, ``delete`` and logs use it.
        """
        msg = f"`{type(self).__qualname__}` must define `look`, or `describe` itself"
        raise NotImplementedError(msg)

    def look_for_logs(self, app_id: str) -> "AppSnapshot | None":
        """Hook: returns roles and replicas of an app whose logs are read; by default all of
        ``look``.

        States may be missing: if logs are files, the backend need not be queried.
        """
        return self.snapshot(app_id)

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> "Iterable[AppSnapshot]":
        """Hook: returns all apps of TorchX that the backend knows, latest first, with as few
        queries as possible. Only ids, names and states are needed.
        """
        msg = f"`{type(self).__qualname__}` must define `look_all`, or `list` itself"
        raise NotImplementedError(msg)

    def snapshot(self, app_id: str) -> "AppSnapshot | None":
        """Returns the snapshot of the current context (see ``one_look``), else a new one."""
        return seen(self, app_id, self.look)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns state and roles of the app; ``None`` if it is unknown or purged."""
        with one_look():
            snapshot = self.snapshot(app_id)
            if snapshot is None:
                return None
            from torchx.schedulers._core.snapshot import to_response

            return to_response(_explained(self, snapshot))

    def describe_native(self, app_id: str) -> "AppDryRunInfo[Any] | None":
        """Returns the native request of the app; ``None`` if it cannot be read back."""
        return None

    def recorded_request(self, app_id: str) -> "Mapping[str, Any] | None":
        """Hook of schedulers that record launches: returns ``version``, ``app`` and ``cfg`` as
        plain data; ``None`` without a record. For other schedulers the runner stores it.
        """
        return None

    def exists(self, app_id: str) -> bool:
        """Returns True if the scheduler knows the app, also a cancelled one."""
        if _defines(self, "look"):
            return self.snapshot(app_id) is not None
        return self.describe(app_id) is not None

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the state of the app may have changed, at the latest after the timeout."""
        time.sleep(timeout_s)

    def wait_for_any_change(self, timeout_s: float) -> None:
        """Returns when the state of any app may have changed, at the latest after the timeout."""
        time.sleep(timeout_s)

    def failed_replicas(self, app_id: str, max_lines: int = 10) -> _FailedReplicas:
        """Returns the replicas whose latest attempt failed, first failure first, if known."""
        with one_look():
            snapshot = self.snapshot(app_id) if _defines(self, "look") else None
            if snapshot is None:
                return []
            if not snapshot.failures:
                return []
            from torchx.schedulers._core import failures

            reader = _log_reader(self, snapshot)
            explained = failures.with_causes(snapshot, reader)
            return failures.failed_replicas(explained, reader, max_lines)

    def cause_rules(self) -> "Sequence[Rule]":
        """Hook: returns rules for messages about waits and failures, most specific first."""
        return ()

    def refusal_rules(self) -> "Sequence[Rule]":
        """Hook: returns rules for messages about refused launches, most specific first."""
        return ()

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Hook: returns the checks of ``torchx doctor``; each runs separately and may take seconds.

        Args:
            configured: options and images of the user's config files, which are checked as well.
        """
        return ()

    def explain(self, app_id: str) -> "Explanation | None":
        """Explains why the app waits, failed or was lost; ``None`` if the app is unknown."""
        from torchx.schedulers._core import explaining

        with one_look():
            snapshot = self.overview(app_id)
            if snapshot is None:
                return None
            reader = _log_reader(self, snapshot) if _defines(self, "read_logs") else None
            return explaining.explain(snapshot, reader, self.cause_rules())

    def has_look(self) -> bool:
        """Returns True if calls share one snapshot, so that further queries cost nothing."""
        return _defines(self, "look")

    def overview(self, app_id: str) -> "AppSnapshot | None":
        """Returns a snapshot of an app; without ``look``, as far as ``describe`` provides it."""
        if _defines(self, "look"):
            return self.snapshot(app_id)
        from torchx.schedulers._core.explaining import from_response

        found = self.describe(app_id)
        return None if found is None else from_response(found)

    # -- ending -------------------------------------------------------------------------------

    def end(self, snapshot: "AppSnapshot") -> None:
        """Hook: requests the end of a running app, because a user cancelled it.

        Does not wait for the end. Later queries find the app CANCELLED.
        """
        msg = f"`{type(self).__qualname__}` must define `end`, or `_cancel_existing` itself"
        raise NotImplementedError(msg)

    def end_rest(self, snapshot: "AppSnapshot") -> None:
        """Hook: ends the other replicas of an app after one has failed for good.

        Only called if ``features.ends_on_failure`` is False. The app ends FAILED.
        """
        self.end(snapshot)

    def remove(self, snapshot: "AppSnapshot") -> None:
        """Hook: ends the app if it runs, and removes the backend's data about it."""
        if not snapshot.terminal:
            self.end(snapshot)

    def look_many(self, app_ids: Sequence[str]) -> "Mapping[str, AppSnapshot]":
        """Hook: returns those apps that the backend knows, with as few queries as possible."""
        looked = ((app_id, self.snapshot(app_id)) for app_id in app_ids)
        return {app_id: snapshot for app_id, snapshot in looked if snapshot is not None}

    def end_many(self, snapshots: "Sequence[AppSnapshot]") -> Mapping[str, TorchXError]:
        """Hook: like ``end``, for many apps with as few calls as possible.

        Returns:
            The errors by app id; a failure does not keep other apps from being ended.
        """
        from torchx.schedulers._core.many import each

        return each(self.end, snapshots)

    def remove_many(self, snapshots: "Sequence[AppSnapshot]") -> Mapping[str, TorchXError]:
        """Hook: like ``remove``, for many apps; returns errors like ``end_many``."""
        from torchx.schedulers._core.many import each

        return each(self.remove, snapshots)

    def cancel(self, app_id: str) -> None:
        """Requests the end of the app and does not wait for it. An unknown app is not an error."""
        with one_look():
            if self.exists(app_id):
                self._cancel_existing(app_id)
                forget(self, app_id)

    def _cancel_existing(self, app_id: str) -> None:
        """Cancels an app that exists."""
        snapshot = self.snapshot(app_id)
        if snapshot is not None and not snapshot.terminal:
            self.end(snapshot)

    def delete(self, app_id: str) -> None:
        """Cancels the app and removes its definition, if there is one to remove."""
        with one_look():
            if self.exists(app_id):
                self._delete_existing(app_id)
                forget(self, app_id)

    def _delete_existing(self, app_id: str) -> None:
        """Deletes an app that exists."""
        if not _defines(self, "look"):
            self._cancel_existing(app_id)
            return
        snapshot = self.snapshot(app_id)
        if snapshot is not None:
            self.remove(snapshot)

    def end_after_failure(self, app_id: str) -> "ReplicaSnapshot | None":
        """Ends the rest of an app after a replica has failed for good, if that is requested and the
        backend does not do it itself. ``Runner.wait`` calls it after each query of an app that has
        not ended.

        Returns:
            The first failure, if the app is being ended because of it; else ``None``.
        """
        with one_look():
            snapshot = self.snapshot(app_id) if _defines(self, "look") else None
            if snapshot is None or snapshot.terminal or snapshot.cancelled:
                return None
            if snapshot.fatal is None or not snapshot.ends_on_failure:
                return None
            if not self.features.ends_on_failure:
                self.end_rest(snapshot)
            return _explained(self, snapshot).fatal

    def needs_watcher(self, app_id: str) -> bool:
        """Returns True if a failure ends the rest of the app only while something waits for it."""
        if self.features.ends_on_failure or not _defines(self, "look"):
            return False
        snapshot = self.snapshot(app_id)
        if snapshot is None or snapshot.terminal or len(snapshot.replicas) < 2:
            return False
        return snapshot.ends_on_failure

    def close(self) -> None:
        """Releases local resources. May be called again."""

    # -- inside a replica -------------------------------------------------------------------

    def execute(
        self, snapshot: "AppSnapshot", replica: "ReplicaSnapshot", request: "ExecRequest"
    ) -> int:
        """Hook: runs a command in a running replica, with its environment and directory.

        Only called if ``features.execute`` is True.

        Returns:
            Its exit code as a shell reports it: 128 plus the number of a signal that ended it.
        """
        from torchx.schedulers._core.executing import cannot_execute

        raise cannot_execute(self.backend, replica)

    def open_port(
        self, snapshot: "AppSnapshot", replica: "ReplicaSnapshot", port: int
    ) -> "PortConnection":
        """Hook: opens a connection to a port of a running replica."""
        from torchx.schedulers._core.executing import cannot_forward

        raise cannot_forward(self.backend, replica, port)

    # -- logs ---------------------------------------------------------------------------------

    def read_logs(
        self, snapshot: "AppSnapshot", replicas: "Sequence[ReplicaKey]", query: "LogQuery"
    ) -> "Iterator[LogChunk]":
        """Hook: yields whole lines of all these replicas, by time as far as it is known.

        The lines of one replica are in order, attempt after attempt. Queries beyond the features of
        the scheduler were refused before. ``since_ns`` and ``until_ns`` may be left to the caller,
        and ``tail`` is a hint: more lines may be yielded. With ``query.follow`` it ends when the
        app has ended and everything was read.
        """
        raise self._unsupported("read_logs")

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
        """Yields the lines of replica ``k`` of a role, with their newlines; all attempts in order.

        Args:
            regex: yield only lines that match.
            since: earliest time; naive times are local, here and in ``until``.
            should_tail: follow the output until the app ends, instead of the current lines only.

        Raises:
            UnknownApp: (a ``KeyError``) if the scheduler does not know the app.
            LogsNotFound: (a ``RuntimeError``) if it has no such role or replica.
            UnsupportedRequest: for undeclared features. All of these are raised at the call.
        """
        if not _has(self, "read_logs"):
            raise self._unsupported("log_iter")
        from torchx.schedulers._core.logs import lines_of
        from torchx.schedulers._core.reading import LinesWanted, log_blocks

        replicas = [(role_name, k)]
        wanted = LinesWanted(replicas, regex, since, until, should_tail, streams)
        return lines_of(log_blocks(self, app_id, wanted, _report_outage))

    def log_blocks(
        self,
        app_id: str,
        replicas: "Sequence[ReplicaKey] | None" = None,
        *,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        attempt: int | None = None,
        tail_lines: int | None = None,
    ) -> Iterator[LogBlock]:
        """Yields the output of several replicas, of all for ``None``, by time if lines have times.

        Args:
            attempt: only this one, 0 is the first.
            tail_lines: only this many of the last lines of each replica, and later ones.

        Raises:
            UnsupportedRequest: at the call, if the scheduler cannot merge logs.
        """
        # an override of the published method wins over this faster path
        if not _defines(self, "read_logs"):
            raise self._unsupported("log_blocks")
        from torchx.schedulers._core.reading import LinesWanted, log_blocks

        wanted = LinesWanted(
            replicas, regex, since, until, should_tail, streams, attempt, tail_lines
        )
        return log_blocks(self, app_id, wanted, _report_outage)

    def verify_logs(
        self, app_id: str, replicas: "Sequence[ReplicaKey] | None" = None
    ) -> _LogReports:
        """Checks that every line that the replicas wrote is in the logs.

        Raises:
            UnsupportedRequest: if the scheduler cannot tell.
        """
        raise self._unsupported("verify_logs")

    def _unsupported(self, method: str) -> UnsupportedRequest:
        return UnsupportedRequest(f"`{type(self).__qualname__}` does not support `{method}`")

    # last: below this line `list` is the method
    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> _Apps:
        """Returns the apps that the scheduler knows, latest first. ``cfg`` may be ``None``."""
        from torchx.schedulers._core.snapshot import to_row

        return [to_row(snapshot) for snapshot in self.look_all(cfg)]


def _report_outage(backend: str, words: str) -> None:
    from torchx._outages import reported_elsewhere

    log = logger.debug if reported_elsewhere.get() else logger.warning
    log("the logs of `%s` are interrupted, trying again: %s", backend, words)


def _explained(scheduler: Scheduler[Any], snapshot: "AppSnapshot") -> "AppSnapshot":
    """Returns the snapshot with the exceptions that the first failed replicas printed."""
    if snapshot.fatal is None or snapshot.cancelled:
        return snapshot
    from torchx.schedulers._core.failures import with_causes

    return with_causes(snapshot, _log_reader(scheduler, snapshot))


def _log_reader(scheduler: Scheduler[Any], snapshot: "AppSnapshot") -> "LogReader | None":
    """Returns the reader for one app; ``None`` if the scheduler has no logs."""
    if not _has(scheduler, "read_logs") or not scheduler.features.logs:
        return None
    from torchx.schedulers._core.reading import reader_of

    return reader_of(scheduler, snapshot)


_VERBS = {"look": "describe", "read_logs": "log_iter"}
"""The verb that follows from a hook, as clients override it."""


def _defines(scheduler: Scheduler[Any], hook: str) -> bool:
    """Returns True if a scheduler implements that hook, rather than the method itself.

    For a client's subclass that overrides the method, the method is called: the inherited hook may
    not be able to reach its backend.
    """
    return _has(scheduler, hook) and not _overridden_below(type(scheduler), _VERBS[hook], hook)


def _has(scheduler: Scheduler[Any], hook: str) -> bool:
    return getattr(type(scheduler), hook, None) is not getattr(Scheduler, hook)


def _overridden_below(cls: type, method: str, hook: str) -> bool:
    """Returns True if a subclass overrides the method, below the class that defines the hook."""
    for base in cls.__mro__:
        if hook in base.__dict__:
            return False
        if method in base.__dict__:
            return True
    return False
