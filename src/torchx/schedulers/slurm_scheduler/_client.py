"""All calls of Slurm's programs that query or end jobs; retried if Slurm is only slow."""

import os
import pwd
import re
import threading
import time
import warnings
from collections.abc import Callable, Sequence

from torchx._retry import with_retries
from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    CommandFailed,
    InvalidInput,
    ProgramNotFound,
    UnexpectedReply,
)
from torchx.schedulers._core.command import BackendPrograms, Waiting

from . import _parse
from ._states import NativeJob, SlurmSnapshot

logger = get_logger(__name__)

RETRY_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""In addition to the programs' own timeout, 9 s if the controller does not answer."""
MIN_INTERVAL_S = 1.0
"""Seconds between two calls of squeue by this process, whatever the number of jobs."""
QUEUE_PAUSES_S = (1.25 * MIN_INTERVAL_S, 2.0, 4.0)
"""Pauses before retries of squeue; jitter may shorten them by 20 %."""
MAX_INTERVAL_S = 60.0
MAX_FAULT_INTERVAL_S = 5.0
"""Seconds between two calls while the controller cannot be reached."""
LOAD_FACTOR = 20
"""A slow squeue is called again only after twenty times its duration."""
SINFO_TIMEOUT_S = 15.0

# strings, compiled when something fails
_TRANSIENT = (
    "unable to contact slurm controller|socket timed out|connection refused|"
    "zero bytes were transmitted|communication connection failure|slurm_persist_conn_open|"
    "unexpected message received|transport endpoint|standby mode|slurm_receive_msg|"
    "unable to connect to database|database connection|slurmdbd|connection reset|"
    "resource temporarily unavailable|protocol authentication error|missing socket error|"
    "slurm_load_jobs error(?!.*invalid job id)"
)
_NO_ACCOUNTING = "accounting storage is disabled|accounting.*not.*configured"


def is_transient(text: str) -> bool:
    """Returns True if a retry may succeed."""
    away = re.search(_TRANSIENT, text, re.IGNORECASE)
    return away is not None and not re.search(_NO_ACCOUNTING, text, re.IGNORECASE)


PROGRAMS = BackendPrograms(
    "Slurm",
    "the client programs of Slurm must be on PATH, run this on a login node of the cluster",
    is_transient,
)


# -- squeue -------------------------------------------------------------------------------------


class Queue:
    """The jobs that squeue lists, queried at most once a second by the whole process.

    One answer has all jobs of the user, so the number of watched ones does not matter.
    """

    def __init__(self, cluster: str = "") -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._jobs: dict[str, NativeJob] = {}
        self._asked = -MAX_INTERVAL_S
        """Time of the last call, by the monotonic clock."""
        self.asked_ns = 0
        """Time of the last call, in nanoseconds since the epoch."""
        self._answered = False
        self._took_s = 0.0
        """Duration of the last call that was answered."""
        self._failures = 0
        self._error: BackendUnavailable | None = None
        self._json = True

    def jobs(self, newer_than: float | None = None, patient: bool = True) -> dict[str, NativeJob]:
        """Returns all jobs by id.

        Args:
            newer_than: a time of the monotonic clock; waits for an answer newer than it. ``None``
                accepts the cached one if it is too early to query again.
            patient: retry the first call of this process if it fails.

        Raises:
            BackendUnavailable: if there is no answer.
        """
        called = time.monotonic()
        with self._lock:
            if self._error is not None and newer_than is None:
                newer_than = called  # an earlier failure does not concern this call
            while True:
                if time.monotonic() >= self._asked + self._interval_s(newer_than is not None):
                    self._refresh(patient)
                if newer_than is None or self._asked >= newer_than:
                    break
                time.sleep(max(self._asked + self._interval_s(True) - time.monotonic(), 0.0))
            if self._error is not None:
                raise self._error
            return self._jobs

    def _interval_s(self, urgent: bool) -> float:
        """Returns the seconds between two calls; urgent if somebody waits for a new job."""
        by_load = min(self._took_s * (1 if urgent else LOAD_FACTOR), MAX_INTERVAL_S)
        by_faults = min(2.0**self._failures, MAX_FAULT_INTERVAL_S) if self._failures else 0.0
        return max(MIN_INTERVAL_S, by_load, by_faults)

    def _refresh(self, patient: bool) -> None:
        try:
            # a process with an answer can wait for the next one; only the first is retried
            tries = QUEUE_PAUSES_S if patient and not self._answered else ()
            self._jobs = self._ask(tries)
        except BackendUnavailable as err:
            self._failures += 1
            self._error = err
            return
        self._took_s = time.monotonic() - self._asked
        self._failures = 0
        self._error = None
        self._answered = True

    def _ask(self, pauses_s: tuple[float, ...]) -> dict[str, NativeJob]:
        try:
            return with_retries(self._ask_once, pauses_s, Waiting().transient)
        except CommandFailed as err:
            if "invalid job id" in err.stderr.lower():
                return {}
            raise BackendUnavailable(str(err)) from None
        except UnexpectedReply as err:
            raise BackendUnavailable(str(err)) from None

    def _ask_once(self) -> dict[str, NativeJob]:
        user = str(os.getuid())
        if self._json:
            try:
                text = self._call(_parse.squeue_json_command(user, self._cluster))
            except CommandFailed as err:
                if not _parse.no_json(err.stderr):
                    raise
                self._json = False
            else:
                # 22.05 reports an unreachable controller like that, with exit code 0
                if errors := _parse.squeue_errors(text):
                    msg = f"Slurm cannot be reached: `squeue` says: {errors}"
                    raise BackendUnavailable(msg)
                return _parse.parse_squeue_json(text)
        return _parse.parse_squeue_text(self._call(_parse.squeue_text_command(user, self._cluster)))

    def _call(self, command: list[str]) -> str:
        self._asked = time.monotonic()
        self.asked_ns = time.time_ns()
        return PROGRAMS.ask(command, pauses_s=())


_queues: dict[tuple[str, str | None], Queue] = {}


def queue(cluster: str = "") -> Queue:
    """Returns the jobs of a cluster, shared by all schedulers of this process."""
    key = (cluster, os.environ.get("SLURM_CONF"))
    found = _queues.get(key)
    return found if found is not None else _queues.setdefault(key, Queue(cluster))


def queued_apps() -> list[SlurmSnapshot]:
    """Returns this user's TorchX jobs that squeue lists."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = ""
    return _parse.queued_apps(queue().jobs().values(), user)


# -- sacct --------------------------------------------------------------------------------------


def accounting(app_id: str, cluster: str = "") -> NativeJob | None:
    """Returns the record of a job in accounting; ``None`` if there is none, or no accounting.

    Raises:
        BackendUnavailable: if there is accounting, and it cannot be reached now.
    """
    text = _ask_sacct(lambda submit: _parse.sacct_command(app_id, submit, cluster))
    return _parse.parse_sacct(text, app_id) if text is not None else None


def accounting_of(app_ids: Sequence[str], cluster: str = "") -> dict[str, NativeJob]:
    """Returns the records of jobs in accounting, with one query."""
    text = _ask_sacct(lambda submit: _parse.sacct_command(",".join(app_ids), submit, cluster))
    found = ((i, _parse.parse_sacct(text, i)) for i in app_ids if text is not None)
    return {app_id: job for app_id, job in found if job is not None}


def accounted_apps() -> list[SlurmSnapshot] | None:
    """Returns this user's TorchX jobs of the last two weeks; ``None`` without accounting."""
    user = str(os.getuid())
    try:
        text = _ask_sacct(lambda submit: _parse.sacct_list_command(user, submit))
    except BackendUnavailable as err:
        logger.warning("only jobs that squeue knows are listed: %s", err)
        return None
    return _parse.accounted_apps(text) if text is not None else None


def _ask_sacct(command: Callable[[bool], list[str]]) -> str | None:
    submit_line = True
    while True:
        try:
            return PROGRAMS.ask(command(submit_line), pauses_s=RETRY_PAUSES_S[:3])
        except CommandFailed as err:
            if submit_line and _parse.no_submit_line(err.stderr):
                submit_line = False
                continue
            logger.debug("%s", err)
            return None
        except ProgramNotFound:
            return None


# -- scancel ------------------------------------------------------------------------------------


def cancel(app_ids: Sequence[str], cluster: str = "") -> None:
    """Requests the end of jobs of one cluster; idempotent.

    Raises:
        BackendUnavailable: if Slurm cannot be reached.
        InvalidInput: if Slurm refuses, for example for jobs of other users.
    """
    command = ["scancel", *([f"--clusters={cluster}"] if cluster else []), *app_ids]
    try:
        with_retries(lambda: PROGRAMS.run(command), RETRY_PAUSES_S, Waiting().transient)
    except CommandFailed as err:
        if re.search(r"already (?:completing|completed)|invalid job id", err.stderr, re.IGNORECASE):
            return
        msg = f"`scancel {' '.join(app_ids)}` failed: {err.stderr}"
        raise InvalidInput(msg) from None


# -- sinfo --------------------------------------------------------------------------------------

ASSUMED_VERSION = (24, 5)


def cluster_version() -> tuple[int, int]:
    """Returns the version of the cluster; warns and assumes one if sinfo does not report it."""
    text = _ask_sinfo("--version")
    found = _parse.parse_version(text) if text is not None else None
    if found is None:
        major, minor = ASSUMED_VERSION
        warnings.warn(
            f"`sinfo --version` does not tell the version of Slurm, assuming {major}.{minor:02d}",
            RuntimeWarning,
            stacklevel=3,
        )
        return ASSUMED_VERSION
    return found


def partition_mem_mb(partition: str | None) -> int | None:
    """Returns the memory of a partition's nodes in MB; ``None`` if unknown."""
    text = _ask_sinfo("--format", "%P,%m", "--noconvert")
    return _parse.parse_memory(text, partition) if text is not None else None


def _ask_sinfo(*arguments: str) -> str | None:
    """Returns the output of sinfo; ``None`` if it is missing or fails: a dry run works without."""
    try:
        command = ["sinfo", *arguments]
        return PROGRAMS.ask(command, timeout_s=SINFO_TIMEOUT_S, pauses_s=(), report=True)
    except (BackendUnavailable, CommandFailed) as err:
        logger.debug("%s", err)
        return None
