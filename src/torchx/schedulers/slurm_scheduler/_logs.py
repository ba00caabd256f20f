"""Finds the log files of replicas, and detects when they are complete."""

import os
import time
from collections.abc import Callable, Iterator, Sequence

from torchx._startup.lazy_logger import get_logger
from torchx.errors import LogsNotFound
from torchx.schedulers._core import file_logs
from torchx.schedulers._core.file_logs import PathsOf
from torchx.schedulers._core.logs import LogChunk, LogQuery
from torchx.schedulers._core.snapshot import ReplicaKey
from torchx.schedulers.api import Stream
from torchx.specs.api import AppState

from ._job import JobDir, JobNotes, log_path
from ._notes import batch_words, modified_ns, notes_dir, read_notes
from ._states import SlurmSnapshot

logger = get_logger(__name__)

ASK_AFTER_S = 10.0
"""Seconds without changes before Slurm is queried whether the job still exists."""
ASK_AGAIN_MAX_S = 60.0
ASK_ENDING_S = 1.0
"""Seconds before such a query for a job that was told to end, or waits for a retry.
"""
LAST_WORDS_S = 5.0
"""Seconds of silence after which a replica that was told to end is considered finished."""
SETTLED_NS = 2_000_000_000
_RAN = (AppState.SUCCEEDED, AppState.FAILED)
_SUFFIXES = {
    Stream.STDOUT: ("out",),
    Stream.STDERR: ("err",),
    Stream.COMBINED: ("out", "err"),
}


def read_logs(
    snapshot: SlurmSnapshot,
    replicas: Sequence[ReplicaKey],
    query: LogQuery,
    has_ended: Callable[[], bool],
) -> Iterator[LogChunk]:
    """Yields lines of replicas, by attempt, and within each attempt stdout before stderr.

    Args:
        has_ended: queries Slurm for the end of the job; called rarely, and only while following.

    Raises:
        LogsNotFound: at the call, if files are missing, or the job failed before it ran.
    """
    job_dir = snapshot.job_dir or JobDir(os.getcwd())
    paths = paths_of(job_dir, snapshot.app_id, query.stream)
    _check_files(snapshot, job_dir, replicas, query, paths)
    if query.follow:
        detector = JobEnd(job_dir, snapshot.app_id, has_ended)
        return file_logs.follow(replicas, paths, detector, query.attempt)
    latest = max((r.attempt for r in snapshot.replicas), default=0)

    def attempts(replica: ReplicaKey) -> list[int]:
        if query.attempt is not None:
            return [query.attempt]
        found = [*range(latest + 1)]
        # without notes, attempts are known only from the files
        while any(os.path.exists(path) for path in paths(replica, len(found))):
            found.append(len(found))
        return found

    return file_logs.read_now(replicas, paths, attempts, query.tail)


def paths_of(job_dir: JobDir, app_id: str, stream: Stream) -> PathsOf:
    """Returns the function for the files of a replica's attempt."""

    def paths(replica: ReplicaKey, attempt: int) -> list[str]:
        role, k = replica
        suffixes = _SUFFIXES[stream]
        return [log_path(job_dir.work_dir, app_id, role, k, attempt, s) for s in suffixes]

    return paths


def _check_files(
    snapshot: SlurmSnapshot,
    job_dir: JobDir,
    replicas: Sequence[ReplicaKey],
    query: LogQuery,
    paths: PathsOf,
) -> None:
    """Raises if no replica has a file, although all must have written one by now."""
    by_key = {replica.key: replica for replica in snapshot.replicas}
    missing = []
    for key in replicas:
        replica = by_key.get(key)
        if replica is None or (replica.exit_code is None and replica.state not in _RAN):
            return  # its files may still appear, or it never ran
        attempt = replica.attempt if query.attempt is None else query.attempt
        files = paths(key, attempt)
        if any(map(os.path.exists, files)):
            continue
        missing.append(files[0])
    if not missing:
        return
    if len(missing) < len(replicas):
        logger.warning("log files of %s replicas are missing: `%s` ...", len(missing), missing[0])
        return
    words = batch_words(job_dir, snapshot.app_id)
    msg = f"job `{snapshot.app_id}` has no log file `{missing[0]}`"
    if words:
        msg += f"; Slurm says in `slurm-{snapshot.app_id}.out`: {words}"
    raise LogsNotFound(msg)


class JobEnd:
    """Detects the end of a job from its notes, and rarely from Slurm."""

    def __init__(self, job_dir: JobDir, app_id: str, has_ended: Callable[[], bool]) -> None:
        self._job_dir = job_dir
        self._app_id = app_id
        self._has_ended = has_ended
        self._path: str | None = None
        self._seen_ns = 0
        self._notes = JobNotes()
        self._quiet_s = 0.0
        self._asked = time.monotonic()
        self._ask_after_s = ASK_AFTER_S
        self._finished = False

    def look(self, quiet_s: float) -> bool:
        """Reads new notes, and queries Slurm if there were none for long."""
        before = self._notes.attempt, self._over
        if quiet_s < self._quiet_s:
            self._ask_after_s = ASK_AFTER_S
        self._quiet_s = quiet_s
        self._read()
        if self._notes.end is not None:
            self._finished = True
        elif not self._finished and self._ask_is_due():
            self._finished = self._has_ended()
            self._asked = time.monotonic()
            self._ask_after_s = min(2 * self._ask_after_s, ASK_AGAIN_MAX_S)
        return before != (self._notes.attempt, self._over)

    def latest(self, replica: ReplicaKey) -> int:
        """Returns the noted attempt."""
        return self._notes.attempt

    def ended(self, replica: ReplicaKey) -> bool:
        """Returns True if the job has ended, and replicas told to end have ended or are silent."""
        return self._over

    @property
    def _over(self) -> bool:
        notes = self._notes
        ending = notes.killed and not notes.done
        return self._finished and (not ending or self._quiet_s > LAST_WORDS_S)

    def _ask_is_due(self) -> bool:
        ending = self._notes.killed or self._notes.requeued
        after_s = ASK_ENDING_S if ending else self._ask_after_s
        since_s = time.monotonic() - self._asked
        return since_s >= after_s and (ending or self._quiet_s >= after_s)

    def _read(self) -> None:
        self._path = self._path or notes_dir(self._job_dir, self._app_id)
        seen_ns = modified_ns(self._path)
        if self._path is None or seen_ns == self._seen_ns:
            return
        # another change right after this one may have the same time
        self._seen_ns = seen_ns if abs(time.time_ns() - seen_ns) > SETTLED_NS else 0
        self._notes = read_notes(self._path, signs_only=True)
