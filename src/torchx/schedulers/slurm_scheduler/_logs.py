"""Reads the log files of replicas, attempt by attempt, and follows them without asking Slurm."""

import os
import threading
import time
from collections.abc import Callable, Iterator

from torchx import _files
from torchx.schedulers.api import Stream

from ._index import Place, log_path, notes_dir, read_progress

READ_BYTES = 1 << 17
SHORTEST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
ASK_AFTER_S = 10.0
"""How long nothing may happen before Slurm is asked whether the job is still there."""
ASK_AGAIN_MAX_S = 60.0
LAST_WORDS_S = 5.0
"""How long a replica that is told to end may be silent and still have something to say."""
SETTLED_NS = 2_000_000_000
_opening = threading.BoundedSemaphore(64)
"""Keeps a thousand followers below the usual limit of 1024 open files, at any moment."""
_SUFFIXES = {
    Stream.STDOUT: ("out",),
    Stream.STDERR: ("err",),
    Stream.COMBINED: ("out", "err"),
}


class File:
    """A log file, read in whole lines as it grows.

    It is open only while it is read: thousands may be followed, and NFS shows what another machine
    wrote only to who opens a file later.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0
        self._held: list[bytes] = []
        """Pieces of a line that has not ended; joined once, however many they are."""

    def lines(self) -> Iterator[str]:
        """The lines that were completed since the last call."""
        more = True
        while more:
            data = self._read()
            more = len(data) == READ_BYTES
            self._at += len(data)
            *whole, rest = data.split(b"\n")
            if whole:
                whole[0] = b"".join([*self._held, whole[0]])
                self._held.clear()
            if rest:
                self._held.append(rest)
            for line in whole:
                yield line.decode("utf-8", "replace") + "\n"

    def rest(self) -> str:
        """The last line, if it has no newline."""
        text = b"".join(self._held).decode("utf-8", "replace")
        self._held.clear()
        return text

    def _read(self) -> bytes:
        with _opening:
            try:
                fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
            try:
                return os.pread(fd, READ_BYTES, self._at)
            finally:
                os.close(fd)

    @property
    def exists(self) -> bool:
        return os.path.exists(self._path)


class Replica:
    """The logs of one replica.

    Args:
        ended: asks Slurm whether the job has ended; called seldom, and only while it is followed.
    """

    def __init__(
        self,
        place: Place,
        app_id: str,
        role: str,
        k: int,
        stream: Stream,
        ended: "Callable[[], bool]",
    ) -> None:
        self._place = place
        self._app_id = app_id
        self._role = role
        self._k = k
        self._suffixes = _SUFFIXES[stream]
        self._ended = ended

    def now(self) -> Iterator[str]:
        """What is there: all attempts in order; of each, stdout comes before stderr."""
        attempt = 0
        files = self._files(attempt)
        while any(file.exists for file in files):
            yield from _drain(files, last=True)
            attempt += 1
            files = self._files(attempt)

    def follow(self) -> Iterator[str]:
        """The same until the job ends; lines come as they are written."""
        attempt = 0
        signs = _Signs(self._place, self._app_id, self._ended)
        while True:
            files = self._files(attempt)
            over = False
            while True:
                quiet = True
                for line in _drain(files, last=False):
                    quiet = False
                    yield line
                if over:
                    break
                # what was written before the sign of the end is read once more
                over = signs.attempt_over(attempt)
                if over:
                    continue
                if quiet:
                    signs.pause()
                else:
                    signs.progress()
            yield from _drain(files, last=True)
            if signs.latest <= attempt and not signs.wait_for_next(attempt):
                return
            attempt += 1

    def _files(self, attempt: int) -> list[File]:
        return [
            File(log_path(self._place.work_dir, self._app_id, self._role, self._k, attempt, s))
            for s in self._suffixes
        ]


def _drain(files: "list[File]", last: bool) -> Iterator[str]:
    for file in files:
        yield from file.lines()
        if last and (rest := file.rest()):
            yield rest


class _Signs:
    """Says from the notes of a job, and seldom from Slurm, how far it is."""

    def __init__(self, place: Place, app_id: str, ended: "Callable[[], bool]") -> None:
        self._place = place
        self._app_id = app_id
        self._ended = ended
        self._path: str | None = None
        self._seen: int | None = None
        self._pause_s = SHORTEST_PAUSE_S
        self._quiet_since = self._last_line = time.monotonic()
        self._ask_after_s = ASK_AFTER_S
        self.latest = 0
        """The latest attempt that has begun."""
        self._finished = False
        self._over = False
        self._killed = False
        self._done = False
        self._last_line = time.monotonic()

    def attempt_over(self, attempt: int) -> bool:
        """Whether nothing more is written by that attempt."""
        self._look()
        if self._finished and self._written():
            return True
        if self.latest > attempt or self._over:
            return True
        if not self._finished and (
            self._killed or time.monotonic() - self._quiet_since > self._ask_after_s
        ):
            self._finished = self._ended()
            self._quiet_since = time.monotonic()
            self._ask_after_s = min(2 * self._ask_after_s, ASK_AGAIN_MAX_S)
            if self._killed:
                self._pause_s = max(self._pause_s, 0.25)
        return self._finished and self._written()

    def _written(self) -> bool:
        """Whether replicas that were told to end have done so, or have long been silent."""
        silent_s = time.monotonic() - self._last_line
        return self._done or not self._killed or silent_s > LAST_WORDS_S

    def wait_for_next(self, attempt: int) -> bool:
        """After the end of an attempt: whether another one has begun, rather than the job ended."""
        while not self._finished:
            self._look()
            if self.latest > attempt:
                return True
            self._finished = self._ended()
            if not self._finished:
                time.sleep(LONGEST_PAUSE_S)
        return False

    def _look(self) -> None:
        self._path = self._path or notes_dir(self._place, self._app_id)
        if self._path is None:
            return
        try:
            seen = os.stat(self._path).st_mtime_ns
        except OSError:
            return
        if seen == self._seen:
            return
        # soon after a change, another one may bear the same time
        self._seen = seen if abs(time.time_ns() - seen) > SETTLED_NS else None
        progress = read_progress(self._path)
        if progress.attempt > self.latest:
            self.latest = progress.attempt
        self._over = progress.end is not None or progress.requeued
        self._killed, self._done = progress.killed, progress.done
        if progress.end is not None:
            self._finished = True

    def pause(self) -> None:
        """Waits a little, and longer each time until there is progress."""
        time.sleep(self._pause_s)
        self._pause_s = min(1.5 * self._pause_s, LONGEST_PAUSE_S)

    def progress(self) -> None:
        """Makes the next pause a short one."""
        self._pause_s = SHORTEST_PAUSE_S
        self._quiet_since = self._last_line = time.monotonic()
        self._ask_after_s = ASK_AFTER_S


def last_lines(
    work_dir: str, app_id: str, role: str, k: int, attempt: int, count: int
) -> list[str]:
    """The last lines of an attempt's errors, or of its output if it wrote no errors."""
    for suffix in ("err", "out"):
        lines = _files.last_lines(log_path(work_dir, app_id, role, k, attempt, suffix), count)
        if lines:
            return lines
    return []
