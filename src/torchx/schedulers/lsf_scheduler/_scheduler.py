"""The scheduler: asks, builds, submits, and finds apps again from any host of the cluster."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchx._home import home_dir
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable
from torchx.schedulers._core.snapshot import ReplicaSnapshot
from torchx.schedulers.api import (
    AppDef,
    AppDryRunInfo,
    AppSnapshot,
    CfgVal,
    LogChunk,
    LogQuery,
    ReplicaKey,
    Role,
    Scheduler,
    SchedulerFeatures,
    one_look,
    runopts,
)
from torchx.schedulers.ids import make_unique
from torchx.specs.api import RetryPolicy
from torchx.workspace.api import WorkspaceMixin

from . import _client, _logs, _notes
from ._job import Notes, clean_app_id
from ._options import LsfOpts, check_options
from ._request import Facts, LsfBsub, build_request, runs_on_host
from ._states import AppView, LsfSnapshot, Row, snapshot

logger = get_logger(__name__)

_LONGEST_WAIT_S = 30.0
"""What is killed before it starts leaves no note."""
_KNOWN_FOLDERS = 10_000


class LsfScheduler(WorkspaceMixin[None], Scheduler[LsfOpts]):
    """Runs apps with bsub; logs and exit codes are files in a folder that all hosts share."""

    features = SchedulerFeatures(
        separate_streams=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.REPLICA}),
        min_replicas=True,
        event_wait=True,
        attempts=True,
        ends_on_failure=True,
    )

    def __init__(self, session_name: str) -> None:
        super().__init__("lsf", session_name)
        self._submitted: dict[str, float] = {}
        """When apps were submitted by this process, by the monotonic clock."""
        self._folders: dict[str, str] = {}
        self._history: dict[str, list[Row]] = {}

    # -- requests ---------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return LsfOpts.as_runopts()

    def _features_with(self, cfg: Any) -> SchedulerFeatures:
        """With containers there are mounts; without, `build_request` says what they need.

        A gang starts again as a whole.
        """
        retries = self.features.retries
        if cfg.get("gang"):
            retries = frozenset({RetryPolicy.APPLICATION})
        return replace(self.features, mounts=True, retries=retries)

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """A role without a resource is accepted: the cluster has defaults."""

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None:
        if isinstance(cfg, Mapping):
            check_options(cfg)

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Copies the workspace of a role to ``workspace`` in ``jobdir``, where the role runs.

        Nothing is done without ``jobdir``, and for a role that runs in a container.
        """
        if not role.workspace or cfg.get("jobdir") is None:
            return
        if not runs_on_host(role.image, cfg.get("runtime"), _is_dir(role.image)):
            logger.info("role `%s` runs in a container: its workspace is not copied", role.name)
            return
        # it takes longer to import than a status takes to show
        from torchx.workspace.dir_workspace import DirWorkspaceMixin

        base = os.path.abspath(os.path.expanduser(str(cfg["jobdir"])))
        _notes.make_base(base)
        where = {**cfg, "job_dir": os.path.join(base, "workspace")}
        DirWorkspaceMixin().caching_build_workspace_and_update_role(role, where, build_cache)

    def _submit_dryrun(self, app: AppDef, cfg: LsfOpts) -> AppDryRunInfo[LsfBsub]:
        dirs = frozenset(role.image for role in app.roles if _is_dir(role.image))
        facts = Facts(os.getcwd(), home_dir(), dirs)
        opts = cfg
        if cfg.jobdir is not None:
            opts = replace(cfg, jobdir=os.path.expanduser(cfg.jobdir))
        request = build_request(app, clean_app_id(make_unique(app.name)), opts, facts)
        return AppDryRunInfo(request, repr)

    # -- submitting -------------------------------------------------------------------------

    def schedule(self, dryrun_info: AppDryRunInfo[LsfBsub]) -> str:
        """Writes the folder of the app, submits its jobs, and returns its id.

        Raises:
            JobStartError: if LSF refuses a job, with its own words; none of them is left then.
            BackendUnavailable: if LSF cannot be reached.
            InvalidInput: if the folder cannot be written.
        """
        request = dryrun_info.request
        jobs = request.jobs()
        _notes.make_folder(request.folder, request.record, jobs)
        _client.submit(jobs)
        app_id = request.app_id
        self._submitted[app_id] = time.monotonic()
        self._know_folder(app_id, request.folder)
        _notes.remember(app_id, request.folder)
        return app_id

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> LsfSnapshot | None:
        """What LSF and the app's own notes tell; ``None`` if nothing is known of it.

        An app that has noted the end of all its replicas is not asked for.
        """
        view = self._noted_view(app_id)
        if view is not None and view.over:
            return snapshot(view)
        rows = self._rows(app_id)
        if not rows:
            rows = self._forgotten(app_id)
        if not rows:
            return snapshot(view) if view is not None and view.over else None
        folder = next((row.folder for row in rows if row.folder), view.folder if view else "")
        self._know_folder(app_id, folder)
        # notes are read after LSF was asked: what it says has then been noted
        return snapshot(_view(app_id, folder, rows))

    def _noted_view(self, app_id: str) -> AppView | None:
        """What is known without LSF; ``None`` where the folder is not known."""
        folder = self._folders.get(app_id) or _notes.recall(app_id)
        return _view(app_id, folder) if folder else None

    def _rows(self, app_id: str) -> list[Row]:
        called = time.monotonic()
        rows = _client.table().apps(self._submitted.get(app_id)).get(app_id)
        if rows is None and app_id not in self._submitted:
            # another process may have submitted it since the latest answer
            rows = _client.table().apps(called).get(app_id)
        return rows or []

    def _forgotten(self, app_id: str) -> list[Row]:
        if app_id not in self._history:
            rows = _client.history(app_id)
            if not rows:
                return []
            self._history[app_id] = rows
        return self._history[app_id]

    def look_for_logs(self, app_id: str) -> AppSnapshot | None:
        """A snapshot without a question to LSF, where the folder of the app tells its roles."""
        view = self._noted_view(app_id)
        if view is None or view.record is None:
            return self.snapshot(app_id)
        return snapshot(view)

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """This user's apps that bjobs knows, the latest first."""
        apps = _client.table().apps(newer_than=time.monotonic())
        found = [_listed(app_id, rows) for app_id, rows in apps.items()]
        return sorted(found, key=_last_job_id, reverse=True)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the app noted something, or when LSF may have news."""
        folder = self._folders.get(app_id) or _notes.recall(app_id)
        before = _notes.modified_ns(folder) if folder else 0
        if not before or _settling(_view(app_id, folder)):
            time.sleep(min(timeout_s, _client.MIN_INTERVAL_S))
            return
        pause_s = 0.05
        deadline = time.monotonic() + min(timeout_s, _LONGEST_WAIT_S)
        while (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(pause_s, left_s))
            pause_s = min(1.3 * pause_s, 0.5)
            if _notes.modified_ns(folder) != before:
                return

    def _know_folder(self, app_id: str, folder: str) -> None:
        if len(self._folders) >= _KNOWN_FOLDERS:
            self._folders.clear()
        if folder:
            self._folders[app_id] = folder

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Asks LSF for the end of all jobs of the app, and notes that a user wanted it."""
        self._end(snapshot, "cancelled")

    def end_rest(self, snapshot: AppSnapshot) -> None:
        """Ends the other replicas of an app of which one has failed."""
        self._end(snapshot, "ending")

    def _end(self, snapshot: AppSnapshot, note: str) -> None:
        assert isinstance(snapshot, LsfSnapshot)  # `look` makes no others
        view = snapshot.view
        ids = [*dict.fromkeys(row.job_id for row in view.rows)]
        if not ids:
            return
        _client.end(ids)
        if view.folder:
            _notes.note(view.folder, note)

    def end_after_failure(self, app_id: str) -> ReplicaSnapshot | None:
        """As everywhere; also where the job that failed could not end the others: LSF had killed
        it, or there is no bkill on its host."""
        with one_look():
            failed = super().end_after_failure(app_id)
            found = self.snapshot(app_id) if failed is not None else None
            if isinstance(found, LsfSnapshot):
                notes = found.view.notes
                if notes.unended or not notes.ending:
                    self.end_rest(found)
        return failed

    # -- logs -------------------------------------------------------------------------------

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Lines of all these replicas; they have no times, those of stdout come before stderr.

        While they are followed, they come as they are written.
        """
        assert isinstance(snapshot, LsfSnapshot)  # `look` makes no others
        return _logs.read_logs(snapshot, replicas, query, lambda: self._has_ended(snapshot.app_id))

    def _has_ended(self, app_id: str) -> bool:
        """Whether LSF says that the app has ended; false if it cannot be reached."""
        try:
            found = self.look(app_id)
        except BackendUnavailable:
            return False
        return found is None or found.terminal


def _view(app_id: str, folder: str, rows: Sequence[Row] = ()) -> AppView:
    if not folder:
        return AppView(app_id, rows)
    notes = _notes.read_notes(folder, hosts=not rows)
    return AppView(app_id, rows, _notes.read_record(folder), notes, folder)


def _listed(app_id: str, rows: Sequence[Row]) -> LsfSnapshot:
    """An app by LSF's word; its notes are looked at only where that may mislead."""
    if not any(row.by_owner for row in rows):
        return snapshot(AppView(app_id, rows))
    folder = next((row.folder for row in rows if row.folder), "")
    if folder and _notes.ends_itself(folder):
        return snapshot(_view(app_id, folder, rows))
    return snapshot(AppView(app_id, rows, notes=Notes(cancelled=True)))


def _last_job_id(snapshot: LsfSnapshot) -> int:
    ids = [int(row.job_id) for row in snapshot.view.rows if row.job_id.isdecimal()]
    return max(ids, default=0)


def _settling(view: AppView) -> bool:
    """Whether what is left is done by LSF itself, which is then asked."""
    return view.notes.cancelled or view.notes.ending or bool(view.notes.killed)


def _is_dir(image: str) -> bool:
    return bool(image) and os.path.isdir(image)


def create_scheduler(session_name: str, **kwargs: object) -> LsfScheduler:
    """Makes the scheduler; unknown keywords are ignored, since all factories get the same."""
    return LsfScheduler(session_name)
