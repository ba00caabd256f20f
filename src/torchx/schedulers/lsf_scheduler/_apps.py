"""Submits, queries and ends apps, by LSF's programs and the apps' own notes."""

import time
from collections.abc import Iterator, Sequence

from torchx.errors import BackendUnavailable
from torchx.schedulers._core.log_query import LogChunk, LogQuery
from torchx.schedulers._core.snapshot import ReplicaKey
from torchx.schedulers._core.waiting import wait_until

from . import _client, _logs, _notes
from ._job import Notes
from ._request import LsfBsub
from ._states import AppView, LsfSnapshot, Row, snapshot

_LONGEST_WAIT_S = 30.0
"""Longest wait in seconds: a job that is killed before it starts leaves no note."""
_KNOWN_FOLDERS = 10_000


class Apps:
    """The cached state of apps, and queries of it."""

    def __init__(self) -> None:
        self._submitted: dict[str, float] = {}
        """When this process submitted apps, by the monotonic clock."""
        self._folders: dict[str, str] = {}
        self._history: dict[str, list[Row]] = {}

    # -- submitting -------------------------------------------------------------------------

    def submit(self, request: LsfBsub) -> None:
        """Writes the folder of the app and submits its jobs.

        Raises:
            JobStartError: if LSF refuses a job, with its message; all jobs are rolled back.
            BackendUnavailable: if LSF cannot be reached.
            InvalidInput: if the folder cannot be written.
        """
        jobs = request.jobs()
        _notes.make_folder(request.folder, request.record, jobs)
        _client.submit(jobs)
        app_id = request.app_id
        self._submitted[app_id] = time.monotonic()
        self._know_folder(app_id, request.folder)
        _notes.remember(app_id, request.folder)

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> LsfSnapshot | None:
        """Returns a snapshot from LSF and the app's own notes; ``None`` if the app is unknown.

        LSF is not queried for an app that has noted the end of all its replicas.
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
        # notes are read after LSF's answer, so that they include what it reports
        return snapshot(_view(app_id, folder, rows))

    def _noted_view(self, app_id: str) -> AppView | None:
        """Returns the view of an app without LSF; ``None`` if its folder is unknown."""
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

    def look_at_notes(self, app_id: str) -> LsfSnapshot | None:
        """Returns a snapshot without querying LSF; ``None`` if the notes lack its roles."""
        view = self._noted_view(app_id)
        return snapshot(view) if view is not None and view.record is not None else None

    def look_all(self) -> list[LsfSnapshot]:
        """Returns this user's apps that bjobs knows, latest first."""
        apps = _client.table().apps(newer_than=time.monotonic())
        found = [_listed(app_id, rows) for app_id, rows in apps.items()]
        return sorted(found, key=_last_job_id, reverse=True)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the app has new notes, or when LSF may have changes."""
        folder = self._folders.get(app_id) or _notes.recall(app_id)
        before = _notes.modified_ns(folder) if folder else 0
        if not before or _settling(_view(app_id, folder)):
            time.sleep(min(timeout_s, _client.MIN_INTERVAL_S))
            return
        wait_until(
            lambda: _notes.modified_ns(folder) != before,
            min(timeout_s, _LONGEST_WAIT_S),
        )

    def _know_folder(self, app_id: str, folder: str) -> None:
        if len(self._folders) >= _KNOWN_FOLDERS:
            self._folders.clear()
        if folder:
            self._folders[app_id] = folder

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: LsfSnapshot, note: str) -> None:
        """Requests the end of all jobs of an app from LSF, and notes why."""
        self.end_many([snapshot], note)

    def end_many(self, snapshots: Sequence[LsfSnapshot], note: str) -> None:
        """Requests the end of all jobs of these apps with one call, and notes why."""
        views = [snapshot.view for snapshot in snapshots if snapshot.view.rows]
        ids = [*dict.fromkeys(row.job_id for view in views for row in view.rows)]
        if not ids:
            return
        _client.end(ids)
        for view in views:
            if view.folder:
                _notes.note(view.folder, note)

    # -- logs -------------------------------------------------------------------------------

    def read_logs(
        self, snapshot: LsfSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of replicas, as they are written or the current ones."""
        return _logs.read_logs(snapshot, replicas, query, lambda: self._has_ended(snapshot.app_id))

    def _has_ended(self, app_id: str) -> bool:
        """Returns True if LSF reports the app's end; False if LSF cannot be reached."""
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
    """Returns an app as LSF reports it; reads its notes only if that may be misleading."""
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
    """Returns True if only LSF acts from now on, so that it must be queried."""
    return view.notes.cancelled or view.notes.ending or bool(view.notes.killed)
