"""Submits, queries and ends jobs, by Slurm's programs and the jobs' own notes."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence

from torchx._files import exclusive_lock, replace_file
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, InvalidInput
from torchx.schedulers._core.logs import LogChunk, LogQuery
from torchx.schedulers._core.snapshot import AppSnapshot, ReplicaKey
from torchx.schedulers._core.waiting import wait_until
from torchx.schedulers.ids import random_id
from torchx.specs.api import AppState, is_terminal

from . import _client, _logs, _notes, _submit
from ._job import JobDir, JobNotes, JobRecord, mark, safe_name
from ._request import SlurmBatchRequest
from ._script import record_of
from ._states import Component, JobView, NativeJob, SlurmSnapshot, snapshot

logger = get_logger(__name__)

SCRIPT = "torchx-sbatch.sh"
NEW_JOB_S = 10.0
"""How long a job that was just submitted may be missing from what Slurm tells."""
_FINAL_FOR_S = 60.0
_LONGEST_WAIT_S = 30.0
"""A job that is cancelled before it starts leaves no note."""
_KNOWN_DIRS = 10_000


class Apps:
    """The cached state of jobs, and queries of it."""

    def __init__(self) -> None:
        self._submitted: dict[str, tuple[float, JobDir]] = {}
        """Time (monotonic clock) and place, by the id of the app."""
        self._dirs: dict[str, JobDir] = {}
        """Places of the jobs that were looked at."""
        self._final: dict[str, tuple[float, NativeJob]] = {}
        """Records in accounting of jobs that have ended, and when they were read."""

    # -- submitting -------------------------------------------------------------------------

    def submit(self, request: SlurmBatchRequest) -> str:
        """Submits the job and returns its id.

        Raises:
            JobStartError: if Slurm refuses it, with its message.
            BackendUnavailable: if Slurm cannot be reached.
            InvalidInput: if the job could not write into its directory.
        """
        if request.job_dir is None:
            with _submit.temporary_folder() as folder:
                return self._submit(request, folder, os.getcwd())
        job_dir = os.path.abspath(os.path.expanduser(request.job_dir))
        try:
            os.makedirs(job_dir, exist_ok=True)
        except OSError as err:
            msg = f"option `job_dir`: cannot make `{job_dir}`: {err.strerror}"
            raise InvalidInput(msg) from None
        # nobody else replaces the script until sbatch has read it
        with exclusive_lock(os.path.join(job_dir, f".{SCRIPT}.lock")):
            return self._submit(request, job_dir, job_dir)

    def _submit(self, request: SlurmBatchRequest, folder: str, work_dir: str) -> str:
        _notes.make_notes_base(work_dir)
        token = random_id()
        path = os.path.join(folder, SCRIPT)
        # it holds the environment
        replace_file(path, request.materialize().encode(errors="surrogateescape"), mode=0o600)
        argv = list(request.cmd)
        if request.job_dir is not None:
            argv.append(f"--chdir={work_dir}")
        argv += [path, mark(token, request.app_name)]
        with _submit.undone_by_signals(token):
            app_id, cluster = _submit.submit(argv, token)
            record = record_of(request)
            noted = JobDir(work_dir, token, cluster, JobRecord.from_data(record))
            self._submitted[app_id] = (time.monotonic(), noted)
            _notes.remember(app_id, noted, record)
            if request.job_dir is not None:
                _save_job_dir(app_id, work_dir)
        return app_id

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> SlurmSnapshot | None:
        """Returns the snapshot of a job from Slurm and its own notes; ``None`` if it is unknown."""
        if not is_job_id(app_id):
            return None
        noted = self._noted(app_id)
        native = self._native(app_id, noted)
        job_dir = noted
        if app_id not in self._submitted:  # the note of another process may be about another job
            job_dir = _notes.find_job_dir(app_id, native, noted)
        path = _notes.notes_dir(job_dir, app_id) if job_dir is not None else None
        notes = _notes.read_notes(path) if path is not None else None
        if native is None and (notes is None or notes.end is None):
            return None
        return self._snapshot(app_id, native, notes, job_dir, path)

    def _snapshot(
        self,
        app_id: str,
        native: NativeJob | None,
        notes: JobNotes | None,
        job_dir: JobDir | None,
        path: str | None,
    ) -> SlurmSnapshot:
        record = job_dir.record if job_dir is not None else None
        view = JobView(app_id, native, notes, job_dir, record or _notes.read_record(path))
        if job_dir is not None:
            if len(self._dirs) >= _KNOWN_DIRS:
                self._dirs.clear()
            self._dirs[app_id] = job_dir
            if view.state is AppState.FAILED and not (notes or JobNotes()).replica_failed:
                view = view._replace(words=_notes.batch_words(job_dir, app_id))
        return snapshot(view)

    def look_at_notes(self, app_id: str) -> SlurmSnapshot | None:
        """Returns a snapshot without querying Slurm; ``None`` if the notes lack its roles."""
        noted = self._noted(app_id) if is_job_id(app_id) else None
        if noted is None or noted.record is None:
            return None
        path = _notes.notes_dir(noted, app_id)
        notes = _notes.read_notes(path) if path is not None else None
        return self._snapshot(app_id, None, notes, noted, path)

    def _native(self, app_id: str, noted: JobDir | None) -> NativeJob | None:
        """Returns the record of the job from squeue, else from sacct."""
        known = self._final.get(app_id)
        if known is not None and time.monotonic() - known[0] < _FINAL_FOR_S:
            return known[1]
        asked = time.monotonic()
        queue = _client.queue(noted.cluster if noted is not None else "")
        job = self._queued(queue, app_id, noted)
        if job is not None:
            return job
        submitted, _ = self._submitted.get(app_id, (asked - NEW_JOB_S, None))
        if noted is not None and asked - submitted < NEW_JOB_S:
            return _just_submitted(app_id, noted)
        job = _client.accounting(app_id, noted.cluster if noted is not None else "")
        if job is None:
            return queue.jobs(newer_than=asked).get(app_id)
        if not is_terminal(job.state):  # submitted after the answer of squeue
            return queue.jobs(newer_than=asked).get(app_id, job)
        self._final[app_id] = (time.monotonic(), job)
        return job

    def _queued(self, queue: _client.Queue, app_id: str, noted: JobDir | None) -> NativeJob | None:
        """Returns the record from squeue, queried again for events after its last answer."""
        asked = time.monotonic()
        job = queue.jobs().get(app_id)
        if job is None:
            submitted = self._submitted.get(app_id)
            return queue.jobs(newer_than=submitted[0]).get(app_id) if submitted else None
        if noted is None or is_terminal(job.state):
            return job
        if _notes.over_ns(noted, app_id) > queue.asked_ns:
            job = queue.jobs(newer_than=asked).get(app_id, job)
        return job

    def _noted(self, app_id: str) -> JobDir | None:
        """Returns the record of this process or this user about the submission."""
        submitted = self._submitted.get(app_id)
        return submitted[1] if submitted is not None else _notes.recall(app_id)

    def cluster(self, app_id: str) -> str:
        """Returns the cluster of a federation that runs the job; empty if there is no other."""
        noted = self._noted(app_id)
        return noted.cluster if noted is not None else ""

    def look_all(self) -> Iterable[AppSnapshot]:
        """Returns this user's TorchX jobs of the last two weeks, latest first."""
        found = {app.app_id: app for app in _client.accounted_apps() or ()}
        # accounting lags by up to some seconds, and may be absent
        found.update((app.app_id, app) for app in _client.queued_apps())
        return sorted(found.values(), key=lambda app: -int(app.app_id))

    def ask_about(self, app_ids: Sequence[str]) -> None:
        """Queries these at once: squeue, and sacct for those that it does not know."""
        clusters: dict[str, list[str]] = {}
        for app_id in app_ids:
            clusters.setdefault(self.cluster(app_id), []).append(app_id)
        for cluster, own in clusters.items():
            queued = _client.queue(cluster).jobs()
            gone = [i for i in own if i not in queued and i not in self._submitted]
            if len(gone) > 1:
                asked_s = time.monotonic()
                for app_id, job in _client.accounting_of(gone, cluster).items():
                    if is_terminal(job.state):
                        self._final[app_id] = (asked_s, job)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the job has new notes, or when Slurm may have changes."""
        job_dir = self._dirs.get(app_id) or self._noted(app_id)
        path = _notes.notes_dir(job_dir, app_id) if job_dir is not None else None
        before = _notes.modified_ns(path)
        if job_dir is None or (path and _notes.read_notes(path, signs_only=True).over):
            # only Slurm itself acts now, which is queried once a second
            time.sleep(min(timeout_s, 1.0))
            return
        wait_until(
            lambda: _notes.modified_ns(_notes.notes_dir(job_dir, app_id)) != before,
            min(timeout_s, _LONGEST_WAIT_S),
        )

    # -- logs -------------------------------------------------------------------------------

    def read_logs(
        self, snapshot: SlurmSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of replicas, as they are written or the current ones."""
        return _logs.read_logs(snapshot, replicas, query, lambda: self._has_ended(snapshot.app_id))

    def _has_ended(self, app_id: str) -> bool:
        """Returns True if Slurm reports the job's end; False if Slurm cannot be reached."""
        try:
            native = self._native(app_id, self._noted(app_id))
        except BackendUnavailable:
            return False
        return native is None or is_terminal(native.state)


def is_job_id(app_id: str) -> bool:
    """Returns True if this can be the id of a job."""
    return app_id.isascii() and app_id.isdecimal()


def _just_submitted(app_id: str, job_dir: JobDir) -> NativeJob:
    roles = job_dir.record.roles if job_dir.record is not None else ()
    components = tuple(
        Component(f"{safe_name(role.name)}-0", AppState.PENDING, "PENDING") for role in roles
    )
    return NativeJob(app_id, components, job_dir.work_dir)


def _save_job_dir(app_id: str, work_dir: str) -> None:
    try:
        _notes.save_job_dir(app_id, work_dir)
    except OSError as err:
        logger.warning("cannot note the job in `%s`: %s", _notes.SLURM_JOB_DIRS, err.strerror)
