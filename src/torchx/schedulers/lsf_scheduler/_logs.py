"""Reads the log files of an app, and detects when they are complete."""

import os
import time
from collections.abc import Callable, Iterator, Sequence

from torchx.errors import LogsNotFound
from torchx.schedulers._core import file_logs
from torchx.schedulers._core.file_logs import PathsOf
from torchx.schedulers._core.log_query import LogChunk, LogQuery
from torchx.schedulers._core.snapshot import ReplicaKey
from torchx.schedulers.api import Stream

from ._job import log_path
from ._notes import modified_ns, read_notes
from ._states import AppView, LsfSnapshot

ASK_AFTER_S = 10.0
"""Seconds without changes before LSF is queried whether the app still exists."""
ASK_AGAIN_MAX_S = 60.0
ASK_ENDING_S = 2.0
"""Seconds without changes before LSF is queried about an app that is being ended."""
_SUFFIXES = {
    Stream.STDOUT: ("out",),
    Stream.STDERR: ("err",),
    Stream.COMBINED: ("out", "err"),
}


def read_logs(
    snapshot: LsfSnapshot,
    replicas: Sequence[ReplicaKey],
    query: LogQuery,
    has_ended: Callable[[], bool],
) -> Iterator[LogChunk]:
    """Yields lines of replicas, by attempt, and within each attempt stdout before stderr.

    Args:
        has_ended: queries LSF for the end of the app; called rarely, and only while following.

    Raises:
        LogsNotFound: at the call, if the folder of the app is not visible here.
    """
    view = snapshot.view
    if not view.folder or not os.path.isdir(view.folder):
        where = f"`{view.folder}` is not there" if view.folder else "LSF does not report its folder"
        msg = f"no logs of app `{snapshot.app_id}`: {where}; read them on a host that shares it"
        raise LogsNotFound(msg)
    paths = _paths_of(view, query.stream)
    if query.follow:
        detector = AppEnd(view, has_ended)
        return file_logs.follow(replicas, paths, detector, query.attempt)
    latest = {replica.key: replica.attempt for replica in snapshot.replicas}

    def attempts(replica: ReplicaKey) -> Sequence[int]:
        if query.attempt is not None:
            return [query.attempt]
        return range(latest[replica] + 1)

    return file_logs.read_now(replicas, paths, attempts, query.tail)


def _paths_of(view: AppView, stream: Stream) -> PathsOf:
    stems = {role.name: role.stem for role in view.roles}

    def paths(replica: ReplicaKey, attempt: int) -> list[str]:
        role, k = replica
        return [
            log_path(view.folder, stems[role], k, attempt, suffix) for suffix in _SUFFIXES[stream]
        ]

    return paths


class AppEnd:
    """Detects the end of an app from its notes, and rarely from LSF."""

    def __init__(self, view: AppView, has_ended: Callable[[], bool]) -> None:
        self._view = view
        self._has_ended = has_ended
        self._index = {role.name: i for i, role in enumerate(view.roles)}
        self._seen_ns = -1
        self._notes = view.notes
        self._finished = False
        self._quiet_s = 0.0
        self._asked = time.monotonic()
        self._ask_after_s = ASK_AFTER_S

    def look(self, quiet_s: float) -> bool:
        """Reads new notes, and queries LSF if there were none for long."""
        if quiet_s < self._quiet_s:
            self._ask_after_s = ASK_AFTER_S
        self._quiet_s = quiet_s
        changed = modified_ns(self._view.folder)
        news = changed != self._seen_ns
        if news:
            self._seen_ns = changed
            self._notes = read_notes(self._view.folder, signs_only=True)
        if not self._finished and self._ask_is_due():
            self._finished = self._has_ended()
            self._asked = time.monotonic()
            self._ask_after_s = min(2 * self._ask_after_s, ASK_AGAIN_MAX_S)
            news = news or self._finished
        return news

    def latest(self, replica: ReplicaKey) -> int:
        """Returns the latest noted attempt."""
        return self._notes.attempts.get(self._key(replica), 0)

    def ended(self, replica: ReplicaKey) -> bool:
        """Returns True if no attempt writes anything more."""
        key = self._key(replica)
        return self._finished or self._notes.final(key, self._view.max_retries(key[0]))

    def _key(self, replica: ReplicaKey) -> tuple[int, int]:
        return self._index[replica[0]], replica[1]

    def _ask_is_due(self) -> bool:
        since = time.monotonic() - self._asked
        if self._notes.cancelled or self._notes.ending:
            return since >= ASK_ENDING_S
        return self._quiet_s >= self._ask_after_s and since >= self._ask_after_s
