"""``local_cwd``: runs the replicas of an app as processes of this machine."""

import builtins
import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx.errors import InvalidInput, LogsNotFound, UnknownApp
from torchx.schedulers.api import (
    DescribeAppResponse,
    FailedReplica,
    ListAppResponse,
    LogBlock,
    LogReport,
    Scheduler,
    SchedulerFeatures,
    Stream,
)
from torchx.specs._home import home_dir
from torchx.specs.api import AppDef, AppDryRunInfo, AppState, CfgVal, RetryPolicy, runopts

from ._apps import SignalException, _LocalAppDef
from ._images import CWDImageProvider, ImageProvider
from ._options import Opts
from ._request import (
    PopenRequest,
    build_request,
    check_startable,
    partition_gpus,
    render_request,
    supervisor_roles,
)
from ._supervise.tree import attempt_dir, describe_exit

if TYPE_CHECKING:
    from datetime import datetime

    from ._record import JobRecord
    from ._states import JobView
    from ._store import Store

AppId = str


class LocalScheduler(Scheduler[Opts]):
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
        left_out=frozenset({"mounts"}),
    )

    # defaults for subclasses that do not call __init__ (NeMo-Run's)
    _extra_paths: list[str] | None = None
    _cache_size = 100

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
        _install_signal_handlers()

    # -- requests ---------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return Opts.as_runopts()

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """A role without a resource is accepted: nothing is reserved on this machine."""

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[PopenRequest]:
        return AppDryRunInfo(self._to_popen_request(app, cfg), render_request)

    def _to_popen_request(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> PopenRequest:
        """Builds the request; ``cfg`` may be a plain and partial mapping (NeMo-Run's is)."""
        import torchx.schedulers.local_scheduler as package

        opts = _as_opts(cfg)
        if opts.grace_s < 0:
            msg = f"`grace_s` must not be negative, given: {opts.grace_s}"
            raise InvalidInput(msg)
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
            warnings.warn(warning, stacklevel=2)
        return request

    def _get_app_log_dir(self, app_id: str, cfg: Mapping[str, CfgVal]) -> str:
        base = cfg.get("log_dir")
        base = os.path.abspath(os.path.expanduser(str(base))) if base else _own_logs_dir()
        return os.path.join(base, self.session_name, app_id)

    def _cuda_device_count(self) -> int:
        from ._client import cuda_device_count

        return cuda_device_count()

    def auto_set_CUDA_VISIBLE_DEVICES(
        self, role_params: dict[str, Any], app: AppDef, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Partitions the GPUs of this machine over the replicas in ``role_params``."""
        request = PopenRequest("", "", role_params, {})
        enabled = _as_opts(cfg).auto_set_cuda_visible_devices
        warning = partition_gpus(request, app, enabled, self._cuda_device_count)
        if warning:
            warnings.warn(warning, stacklevel=2)

    # -- submitting -------------------------------------------------------------------------

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Starts every replica, or none; returns once all run.

        Raises:
            JobStartError: if the job cannot be started as a whole.
        """
        from . import _client
        from ._store import Store

        request = dryrun_info.request
        opts = _as_opts(dryrun_info.cfg)
        cwd = os.getcwd()
        check_startable(request, os.environ.get("PATH", ""), cwd)
        store = Store()
        app = dryrun_info.app
        data = self._record_data(request, app, opts, cwd)
        job_dir, lock = store.create(request.app_id, data)
        own_dirs = _missing_dirs(request.log_dir)
        try:
            try:
                _make_log_dirs(request)
                spec = {**data, "app": None, "cfg": None, "app_log_dir": request.log_dir}
                lifeline = _client.start(store, job_dir, lock, spec)
            finally:
                os.close(lock)
        except BaseException:
            _remove_log_dirs(request, own_dirs)
            store.discard(request.app_id)
            raise
        self._apps[request.app_id] = _LocalAppDef(
            request.app_id, request.log_dir, dryrun_info, lifeline
        )
        return request.app_id

    def _record_data(
        self, request: PopenRequest, app: AppDef | None, opts: Opts, cwd: str
    ) -> dict[str, Any]:
        from torchx.specs._serialize import app_to_json

        from ._client import host

        retries = {r.name: (r.max_retries, r.retry_policy.name) for r in app.roles} if app else {}
        own_logs = request.log_dir.startswith(os.path.join(_own_logs_dir(), ""))
        return {
            "version": 1,
            "app_id": request.app_id,
            "name": app.name if app else request.app_id.rpartition("-")[0],
            "session": self.session_name,
            "created_ns": time.time_ns(),
            "host": host(),
            "attached": not opts.detach,
            "grace_s": opts.grace_s,
            "log_dir": request.log_dir,
            "own_logs": own_logs,
            "app": app_to_json(app) if app else None,
            "cfg": {k: v for k, v in opts.items() if k in _OPTION_NAMES},
            "roles": supervisor_roles(request, retries, cwd),
        }

    # -- looking ----------------------------------------------------------------------------

    def _find(self, app_id: str) -> "tuple[Store, JobRecord] | None":
        from ._store import Store

        store = Store()
        record = store.read(app_id)
        return (store, record) if record else None

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """State, replicas and roles of a job; ``None`` if there is no record of it."""
        from . import _failure, _states

        found = self._find(app_id)
        if found is None:
            return None
        store, record = found
        view = _settled_view(store, record)
        files = _failure.error_files(record, view)
        error = _failure.first_failure(record, view, files)
        errors = {key: text for key, (_, text) in files.items()}
        statuses = _states.role_statuses(view, record.roles, errors, record.text("host"))
        response = _states.response(app_id, view, statuses, error, record.text("log_dir"))
        app = record.app()
        if app is not None:
            response.roles, response.metadata = app.roles, app.metadata
        known = self._apps.get(app_id)
        if known is not None and known.state is not view.state:
            known.set_state(view.state)
        return response

    def describe_native(self, app_id: str) -> AppDryRunInfo[PopenRequest] | None:
        """The request that was submitted, with its app."""
        known = self._apps.get(app_id)
        if known is not None and known.dryrun_info is not None:
            return known.dryrun_info
        found = self._find(app_id)
        if found is None:
            return None
        info: AppDryRunInfo[PopenRequest] = AppDryRunInfo(found[1].request(), render_request)
        info.app = found[1].app()
        info.cfg = _as_opts(found[1].data["cfg"])
        return info

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> "list[ListAppResponse]":
        """All recorded jobs of this user, the latest first."""
        from ._store import Store

        store = Store()
        running = []
        for app_id in store.active():
            record = store.read(app_id)
            if record is not None:
                view = _settled_view(store, record)
                row = ListAppResponse(app_id, view.state, name=record.text("name"))
                running.append((int(record.text("created_ns")), row))
        running.sort(key=lambda item: -item[0])
        rows = [row for _, row in running]
        seen = {row.app_id for row in rows}
        states = AppState.__members__
        for job in store.finished():
            if job.app_id not in seen:
                rows.append(ListAppResponse(job.app_id, states[job.state], name=job.name))
        return rows

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns as soon as something happened to the job, at the latest after the time."""
        from ._client import Watch

        found = self._find(app_id)
        if found is None:
            return
        watch = Watch(found[1].path, logs=False)
        try:
            if not watch.live:
                if not found[1].view().terminal:
                    time.sleep(min(timeout_s, _UNREACHABLE_PAUSE_S))
            elif not found[1].view().terminal:
                watch.wait(timeout_s)
        finally:
            watch.close()

    # -- ending -----------------------------------------------------------------------------

    def _cancel_existing(self, app_id: str) -> None:
        from ._client import request_cancel

        found = self._find(app_id)
        if found is not None and not found[1].view().terminal:
            request_cancel(*found)

    def _delete_existing(self, app_id: str) -> None:
        """Cancels the job if it runs, waits for its end and removes its record and logs."""
        from ._client import end

        found = self._find(app_id)
        if found is None:
            return
        store, record = found
        if not record.view().terminal:
            end(store, record)
        store.forget(record)
        known = self._apps.pop(app_id, None)
        if known is not None:
            known.close()

    def close(self) -> None:
        """Ends the attached jobs that this scheduler launched; detached ones go on."""
        for app in list(getattr(self, "_apps", {}).values()):
            app.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # noqa: BLE001 - nobody can catch it here
            return

    # -- logs -------------------------------------------------------------------------------

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
        """Lines of one replica, all its attempts in order.

        Raises:
            UnknownApp: (a ``KeyError``) if there is no record of the app.
            LogsNotFound: (a ``RuntimeError``) if there is no such role or replica.
        """
        from ._logs import lines_of

        blocks = self.log_blocks(
            app_id,
            [(role_name, k)],
            regex=regex,
            since=since,
            until=until,
            should_tail=should_tail,
            streams=streams,
        )
        return lines_of(blocks)

    def log_blocks(
        self,
        app_id: str,
        replicas: "Sequence[tuple[str, int]] | None" = None,
        *,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        attempt: int | None = None,
    ) -> Iterator[LogBlock]:
        """What several replicas printed, in the order of time. See ``log_iter`` for errors."""
        from . import _logs
        from ._client import Watch

        record = self._find_logs(app_id)
        targets = _targets(record, replicas)
        stream = Stream(streams) if streams is not None else Stream.COMBINED
        sources = [
            _logs.Source(record.replica_dir(role, k), name, k, stream, attempt)
            for role, name, k in targets
        ]
        watch = (lambda: Watch(record.path, logs=True)) if should_tail else None
        blocks = _logs.follow(sources, watch, _to_ns(since), _to_ns(until))
        if regex is None:
            return blocks
        from torchx.schedulers._log_filter import blocks_matching

        return blocks_matching(blocks, regex)

    def _find_logs(self, app_id: str) -> "JobRecord":
        found = self._find(app_id)
        if found is None:
            msg = f"there is no local job `{app_id}`; `torchx list -s local_cwd` shows all"
            raise UnknownApp(msg)
        return found[1]

    def verify_logs(
        self, app_id: str, replicas: "Sequence[tuple[str, int]] | None" = None
    ) -> "builtins.list[LogReport]":
        """Compares every log file with its index, attempt by attempt."""
        from . import _logs

        record = self._find_logs(app_id)
        view = record.view()
        reports = []
        for role, name, k in _targets(record, replicas):
            seen = view.replicas.get((role, k))
            for attempt in range((seen.attempt if seen else 0) + 1):
                folder = attempt_dir(record.replica_dir(role, k), attempt)
                reports += _logs.verify(folder, name, k, attempt)
        return reports

    def failed_replicas(self, app_id: str, max_lines: int = 10) -> "builtins.list[FailedReplica]":
        """The replicas whose latest attempt failed, the first failure first."""
        from . import _logs
        from ._states import replica_state

        found = self._find(app_id)
        if found is None:
            return []
        record = found[1]
        view = record.view()
        names = [name for name, _ in record.roles]
        failed = []
        for (role, k), replica in sorted(view.replicas.items(), key=lambda i: i[1].ended_ns):
            if replica_state(replica, view) is not AppState.FAILED:
                continue
            folder = attempt_dir(record.replica_dir(role, k), replica.attempt)
            failed.append(
                FailedReplica(
                    role=names[role],
                    replica=k,
                    attempt=replica.attempt,
                    exit_code=replica.code,
                    reason=describe_exit(replica.code or 0),
                    log_path=os.path.join(folder, "combined.log"),
                    last_lines=_logs.last_lines(folder, max_lines),
                )
            )
        return failed


_OPTION_NAMES = frozenset(Opts.__dataclass_fields__) - {"_extra_cfg"}
_UNREACHABLE_PAUSE_S = 0.5
"""Pause between looks at a job that cannot be reached, on another machine say."""


def _own_logs_dir() -> str:
    """Where logs go when no ``log_dir`` is given; they are deleted with their job."""
    return os.path.join(os.path.abspath(home_dir()), "local", "logs")


def _as_opts(cfg: object) -> Opts:
    if isinstance(cfg, Opts):
        return cfg
    if not isinstance(cfg, Mapping):
        return Opts()  # a client's own object in its place (NeMo-Run)
    given = {k: v for k, v in cfg.items() if k in _OPTION_NAMES and v is not None}
    return Opts.from_cfg(given)


def _settled_view(store: "Store", record: "JobRecord") -> "JobView":
    """The state of a job, after completing the record of one whose supervisor was killed."""
    view = record.view()
    if not view.terminal:
        from ._client import settle

        settle(store, record)
        view = record.view()
    return view


def _targets(
    record: "JobRecord", replicas: "Sequence[tuple[str, int]] | None"
) -> "list[tuple[int, str, int]]":
    """Role index, role name and replica of what is asked for; everything for ``None``."""
    roles = record.roles
    if replicas is None:
        return [(i, name, k) for i, (name, count) in enumerate(roles) for k in range(count)]
    indices = {name: i for i, (name, _) in enumerate(roles)}
    targets = []
    for name, k in replicas:
        index = indices.get(name)
        if index is None or not 0 <= k < roles[index][1]:
            have = ", ".join(f"{n}/0..{count - 1}" for n, count in roles)
            msg = (
                f"app `{record.text('app_id')}` has no replica `{name}/{k}`, it has: {have} "
                f"(log_dir: {record.text('log_dir')})"
            )
            raise LogsNotFound(msg)
        targets.append((index, name, k))
    return targets


def _to_ns(moment: "datetime | None") -> int | None:
    """Nanoseconds since the epoch; a time without a zone is local time."""
    return None if moment is None else int(moment.timestamp() * 1_000_000) * 1_000


def _missing_dirs(path: str) -> "list[str]":
    """The folders that must be made for ``path`` to exist, the innermost first."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _make_log_dirs(request: PopenRequest) -> None:
    from torchx.errors import JobStartError

    try:
        os.makedirs(request.log_dir)
        for dirs in request.role_log_dirs.values():
            for path in dirs:
                os.makedirs(path)
    except OSError as err:
        msg = f"cannot make the log directory `{err.filename}`: {err.strerror}"
        raise JobStartError(msg) from None


def _remove_log_dirs(request: PopenRequest, own_dirs: "list[str]") -> None:
    """Takes back ``_make_log_dirs``: what this call made, and nothing that was there."""
    import shutil

    if request.log_dir in own_dirs:
        shutil.rmtree(request.log_dir, ignore_errors=True)
        for path in own_dirs[1:]:
            try:
                os.rmdir(path)
            except OSError:
                return


def _install_signal_handlers() -> None:
    """Makes SIGTERM and SIGINT raise in the main thread, so that ``finally`` ends the jobs."""
    if threading.current_thread() is not threading.main_thread():
        return
    import signal

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _raise_signal)


def _raise_signal(signum: int, _frame: object) -> None:
    import signal

    sigval = signal.Signals(signum)
    msg = f"process {os.getpid()} got signal {sigval.name}"
    raise SignalException(msg, sigval)


def create_scheduler(
    session_name: str,
    cache_size: int = 100,
    extra_paths: "list[str] | None" = None,
    image_provider_class: type[ImageProvider] = CWDImageProvider,
    **kwargs: object,
) -> LocalScheduler:
    """Makes the scheduler; unknown keywords are ignored, since all factories get the same."""
    return LocalScheduler(session_name, image_provider_class, cache_size, extra_paths)
