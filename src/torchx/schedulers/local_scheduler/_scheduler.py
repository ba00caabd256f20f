"""``local_cwd``: runs the replicas of an app as processes of this machine."""

import builtins
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, UnknownApp
from torchx.schedulers.api import (
    LogReport,
    Scheduler,
    SchedulerFeatures,
    ends_on_failure,
)
from torchx.specs.api import AppDef, AppDryRunInfo, AppState, CfgVal, RetryPolicy, runopts

# imported where needed: code that submits, queries and reads (8 of the 50 ms of a dry run)
from ._compat import (
    RunsProcesses,
    SignalHandlers,
    _LocalAppDef,
    ask_hook,
)
from ._folders import own_logs_dir
from ._images import CWDImageProvider, ImageProvider
from ._options import Opts, as_opts
from ._request import (
    PopenRequest,
    beyond_memory,
    build_request,
    partition_gpus,
    render_request,
)

if TYPE_CHECKING:
    from torchx.schedulers.api import (
        AppSnapshot,
        ExecRequest,
        LogChunk,
        LogQuery,
        ReplicaKey,
        ReplicaSnapshot,
    )
    from torchx.schedulers.causes import Rule
    from torchx.schedulers.checkups import Checkup, Configured

    from ._record import JobRecord
    from ._store import Store

logger = get_logger(__name__)

AppId = str


def _memory_mb() -> int:
    """Returns the memory of this machine in MB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


class LocalScheduler(RunsProcesses, Scheduler[Opts]):
    """Runs apps on this machine; every job is recorded and visible from other processes.

    Args:
        cache_size: kept for compatibility; must be positive. Nothing is evicted.
        extra_paths: directories put in front of every replica's ``PATH``.
    """

    features = SchedulerFeatures(
        separate_streams=True,
        log_time_range=True,
        delete_forgets=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset(RetryPolicy),
        event_wait=True,
        attempts=True,
        verify_logs=True,
        ends_on_failure=True,
        execute=True,
        left_out=frozenset({"mounts", "resource", "devices"}),
    )

    # defaults for subclasses that do not call __init__ (NeMo-Run's)
    _extra_paths: list[str] | None = None
    _cache_size = 100
    _signals: SignalHandlers | None = None

    def __init__(
        self,
        session_name: str,
        image_provider_class: type[ImageProvider],
        cache_size: int = 100,
        extra_paths: list[str] | None = None,
    ) -> None:
        super().__init__("local", session_name)
        try:
            cache_size = int(cache_size)
        except (TypeError, ValueError):
            cache_size = 0
        if cache_size <= 0:
            msg = f"cache size must be a positive number, given: {cache_size}"
            raise InvalidInput(msg)
        self._apps: dict[AppId, _LocalAppDef] = {}
        self._image_provider_class = image_provider_class
        self._cache_size = cache_size
        self._extra_paths = extra_paths
        self._signals = SignalHandlers()

    # -- requests ---------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return Opts.as_runopts()

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """Accepts a role without a resource: nothing is reserved on this machine."""

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[PopenRequest]:
        return AppDryRunInfo(self._to_popen_request(app, cfg), render_request)

    def _to_popen_request(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> PopenRequest:
        """Builds the request; ``cfg`` may be a plain and partial mapping (NeMo-Run's is)."""
        import torchx.schedulers.local_scheduler as package

        opts = as_opts(cfg)
        ends_on_failure(opts.on_failure)
        if opts.grace_s < 0:
            msg = f"`grace_s` must not be negative, given: {opts.grace_s}"
            raise InvalidInput(msg)
        replicas = sum(role.num_replicas for role in app.roles)
        if replicas > _MANY_REPLICAS:
            from ._launch import check_descriptors

            check_descriptors(replicas)
        app_id = package.make_unique(app.name)  # clients replace that name to get stable ids
        provider = self._image_provider_class(opts)  # type: ignore[call-arg]  # shipped ones take cfg
        request = build_request(
            app,
            app_id,
            self._get_app_log_dir(app_id, opts),
            provider,
            opts.prepend_cwd,
            self._extra_paths or (),
        )
        warning = partition_gpus(
            request, app, opts.auto_set_cuda_visible_devices, self._cuda_device_count
        )
        if warning:
            logger.warning("%s", warning)
        for text in beyond_memory(app, _memory_mb()):
            logger.warning("%s", text)
        return request

    def _get_app_log_dir(self, app_id: str, cfg: Mapping[str, CfgVal]) -> str:
        base = cfg.get("log_dir")
        base = os.path.abspath(os.path.expanduser(str(base))) if base else own_logs_dir()
        return os.path.join(base, self.session_name, app_id)

    def _cuda_device_count(self) -> int:
        from ._client import cuda_device_count

        return cuda_device_count()

    def auto_set_CUDA_VISIBLE_DEVICES(
        self, role_params: dict[str, Any], app: AppDef, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Partitions the GPUs of this machine over the replicas in ``role_params``."""
        request = PopenRequest("", "", role_params, {})
        enabled = as_opts(cfg).auto_set_cuda_visible_devices
        warning = partition_gpus(request, app, enabled, self._cuda_device_count)
        if warning:
            logger.warning("%s", warning)

    # -- submitting -------------------------------------------------------------------------

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Starts every replica, or none; returns when all are running.

        Raises:
            JobStartError: if the job cannot be started as a whole.
        """
        from ._launch import Launch, check_startable, keep_to_limit, record_data

        request = dryrun_info.request
        if type(self).run_local_job is not _OUR_RUN_LOCAL_JOB:
            request = ask_hook(request, self.run_local_job)
        opts = as_opts(dryrun_info.cfg)
        cwd = os.getcwd()
        check_startable(request, os.environ.get("PATH", ""), cwd)
        self._let_go_of_ended()
        data = record_data(request, dryrun_info.app, opts, self.session_name, cwd)
        launch = Launch(_store(), request, data)
        try:
            lifeline = launch.run()
            self._apps[request.app_id] = _LocalAppDef(
                request.app_id, request.log_dir, dryrun_info, lifeline
            )
        except BaseException:
            launch.undo()
            raise
        keep_to_limit(_store())
        return request.app_id

    def _let_go_of_ended(self) -> None:
        """Closes connections to jobs that have ended and were not queried since."""
        for app_id in [app.id for app in self._known_apps() if app.cut_off]:
            try:
                self.look(app_id)
            except OSError:  # of a job other than the one being started: its next query reports it
                continue

    def _known_apps(self) -> "builtins.list[_LocalAppDef]":
        return [*getattr(self, "_apps", {}).values()]

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> "AppSnapshot | None":
        """Returns the snapshot of a job; ``None`` if there is no record of it."""
        from ._client import settled_view
        from ._states import snapshot

        store = _store()
        record = store.read(app_id)
        if record is None:
            return None
        view = settled_view(store, record)
        known = getattr(self, "_apps", {}).get(app_id)
        if known is not None and known.state is not view.state:
            known.set_state(view.state)
            if view.terminal:
                known.close()
        return snapshot(record, view, store.errors(record, view))

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> "Iterator[AppSnapshot]":
        """Yields this user's recorded jobs, latest first; most with only id, name and state."""
        from torchx.schedulers._core.snapshot import AppSnapshot

        store = _store()
        running = [*_active(store)]
        running.sort(key=lambda item: -item[0].created_ns)
        for record, state in running:
            yield AppSnapshot(
                record.app_id,
                name=record.name,
                native_state=state,
                created_ns=record.created_ns or None,
            )
        seen = {record.app_id for record, _ in running}
        unknown = AppState.UNKNOWN
        states = {**AppState.__members__}  # a plain dict is three times faster to read
        for row in store.finished():
            if row[0] not in seen:
                state = states.get(row[2], unknown)
                yield AppSnapshot(
                    row[0],
                    name=row[5],
                    native_state=state,
                    created_ns=int(row[3]) if row[3].isdigit() else None,
                )

    def describe_native(self, app_id: str) -> AppDryRunInfo[PopenRequest] | None:
        """Returns the submitted request, with its app."""
        known = self._apps.get(app_id)
        if known is not None and known.dryrun_info is not None:
            return known.dryrun_info
        record = _store().read(app_id)
        if record is None or record.damage:
            return None
        info: AppDryRunInfo[PopenRequest] = AppDryRunInfo(record.request(), render_request)
        info.app = record.app()
        info.cfg = as_opts(record.data.get("cfg"))
        return info

    def recorded_request(self, app_id: str) -> "Mapping[str, Any] | None":
        """Returns the content of the job's record."""
        record = _store().read(app_id)
        return record.data if record is not None and not record.damage else None

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the job has changed, at the latest after the timeout."""
        from ._client import wait_for_change

        wait_for_change(_store(), app_id, timeout_s)

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Returns the checks of what local jobs need."""
        from ._checkups import checkups

        return checkups()

    def cause_rules(self) -> "Sequence[Rule]":
        """Returns the rules for messages of the supervisor."""
        from ._causes import RULES

        return RULES

    def refusal_rules(self) -> "Sequence[Rule]":
        """Returns the rules for refused launches."""
        from ._causes import REFUSALS

        return REFUSALS

    def wait_for_any_change(self, timeout_s: float) -> None:
        """Returns when a job was launched or has changed."""
        from ._client import wait_for_any_change

        wait_for_any_change(_store(), timeout_s)

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: "AppSnapshot") -> None:
        """Requests the end of the job from its supervisor, and waits for a moment.

        A query right after it then finds a job CANCELLED that ends at once.
        """
        from ._client import END_NOTICE_S, request_cancel, wait_for_lock

        store = _store()
        record = store.read(snapshot.app_id)
        if record is not None:
            request_cancel(store, record)
            wait_for_lock(store, record.app_id, END_NOTICE_S)

    def remove(self, snapshot: "AppSnapshot") -> None:
        """Ends the job if it runs, waits for its end and removes its record and logs."""
        from . import _client

        store = _store()
        record = store.read(snapshot.app_id)
        if record is None:
            return
        if not snapshot.terminal:
            _client.end(store, record)
        store.forget(record)
        known = self._apps.pop(snapshot.app_id, None)
        if known is not None:
            known.set_state(snapshot.state if snapshot.terminal else AppState.CANCELLED)
            known.close()

    # -- inside a replica -------------------------------------------------------------------

    def execute(
        self, snapshot: "AppSnapshot", replica: "ReplicaSnapshot", request: "ExecRequest"
    ) -> int:
        """Runs a command with the environment and in the directory of the replica."""
        from ._execute import execute

        record = _store().read(snapshot.app_id)
        if record is None:
            raise UnknownApp(f"`{self.backend}` does not know app `{snapshot.app_id}`")
        return execute(record, replica, request)

    def close(self) -> None:
        """Ends the attached jobs that this scheduler launched; detached ones go on."""
        for app in self._known_apps():
            app.close()
        if self._signals is not None:
            self._signals.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # noqa: BLE001 - nobody can catch it here
            return

    # -- logs -------------------------------------------------------------------------------

    def read_logs(
        self, snapshot: "AppSnapshot", replicas: "Sequence[ReplicaKey]", query: "LogQuery"
    ) -> "Iterator[LogChunk]":
        """Yields lines of these replicas by time, all attempts of each in order."""
        from ._client import Follower
        from ._logs import read

        found = {replica.key: replica for replica in snapshot.replicas}
        return read(
            [found[key] for key in replicas], query, lambda: Follower(_store(), snapshot.app_id)
        )

    def verify_logs(
        self, app_id: str, replicas: "Sequence[ReplicaKey] | None" = None
    ) -> "builtins.list[LogReport]":
        """Compares every log file with its index, attempt by attempt.

        Raises:
            UnknownApp: if there is no record of the app.
            LogsNotFound: if it has no such role or replica.
        """
        from ._logs import verify

        snapshot = self.snapshot(app_id)
        if snapshot is None:
            raise UnknownApp(f"`{self.backend}` does not know app `{app_id}`")
        from torchx.schedulers._core.snapshot import select_replicas

        wanted = {*select_replicas(snapshot, replicas)}
        return [report for r in snapshot.replicas if r.key in wanted for report in verify(r)]


_MANY_REPLICAS = 100_000
"""More are not even planned, which takes memory and time, unless they could run."""
_OUR_RUN_LOCAL_JOB = LocalScheduler.run_local_job


def _store() -> "Store":
    from ._store import Store

    return Store()


def _active(store: "Store") -> "Iterator[tuple[JobRecord, AppState]]":
    """Yields the jobs not known to have finished, and their states."""
    active = store.active()
    if not active:
        return
    from ._client import settled_view

    for app_id in active:
        record = store.read(app_id)
        if record is None:
            store.clear_leftover(app_id)
            continue
        state = AppState.UNKNOWN if record.damage else settled_view(store, record).state
        yield record, state


def create_scheduler(
    session_name: str,
    cache_size: int = 100,
    extra_paths: "list[str] | None" = None,
    image_provider_class: type[ImageProvider] = CWDImageProvider,
    **kwargs: object,
) -> LocalScheduler:
    """Creates the scheduler; unknown keywords are ignored, because all factories get the same."""
    return LocalScheduler(session_name, image_provider_class, cache_size, extra_paths)
