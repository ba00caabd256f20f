"""All calls of Slurm's programs: retried where Slurm is only slow, and told in its own words."""

import os
import re
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    InvalidInput,
    JobStartError,
    ProgramNotFound,
    UnexpectedReply,
)

from . import _sacct, _squeue
from ._states import NativeJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchx.schedulers.api import ListAppResponse

logger = get_logger(__name__)

CALL_TIMEOUT_S = 60
RETRY_PAUSES_S = (0.5, 1, 2, 4, 8)
MIN_INTERVAL_S = 1.0
"""Between two calls of squeue by this process, whatever the number of jobs."""
QUEUE_PAUSES_S = tuple(max(pause_s, MIN_INTERVAL_S) for pause_s in RETRY_PAUSES_S)
MAX_INTERVAL_S = 60.0
LOAD_FACTOR = 20
"""A squeue that takes a time is not called again before twenty times that time is over."""
STALE_S = 300.0
"""How long a job may be described by the last answer while the controller cannot be reached."""
LOOKS_S = 2.0
"""How long a job is looked for before it is submitted again: its controller was not reached."""
LATE_JOB_S = 30.0
"""How long a job is looked for that the controller may be about to take."""

_TRANSIENT = re.compile(
    r"unable to contact slurm controller|socket timed out|connection refused|"
    r"zero bytes were transmitted|communication connection failure|slurm_persist_conn_open|"
    r"unexpected message received|transport endpoint|standby mode|slurm_receive_msg|"
    r"unable to connect to database|database connection|slurmdbd|connection reset|"
    r"resource temporarily unavailable|protocol authentication error|"
    r"slurm_load_jobs error(?!.*invalid job id)",
    re.IGNORECASE,
)
_NO_ACCOUNTING = re.compile(r"accounting storage is disabled|accounting.*not.*configured", re.I)


def is_transient(text: str) -> bool:
    """Whether the same call may succeed a little later."""
    return bool(_TRANSIENT.search(text)) and not _NO_ACCOUNTING.search(text)


def own_words(err: "subprocess.CalledProcessError | subprocess.TimeoutExpired") -> str:
    """What Slurm said, on one line."""
    if isinstance(err, subprocess.TimeoutExpired):
        return f"no answer within {err.timeout:g} s"
    text = _text(err.stderr).strip() or _text(err.stdout).strip()
    lines = [re.sub(r"^s\w+: (?:error: )?", "", line).strip() for line in text.split("\n")]
    told = "; ".join(line for line in lines if line)
    return told or f"exit code {err.returncode} without a word"


def _text(output: object) -> str:
    if isinstance(output, bytes):
        return output.decode("utf-8", "replace")
    return str(output or "")


def _missing(program: str) -> ProgramNotFound:
    msg = (
        f"`{program}` was not found: the client programs of Slurm must be on PATH, "
        "run this on a login node of the cluster"
    )
    return ProgramNotFound(msg)


def ask(
    command: "list[str]",
    pauses_s: "tuple[float, ...]" = RETRY_PAUSES_S,
    calling: "Callable[[], None] | None" = None,
) -> str:
    """Standard output of a call that changes nothing; transient faults are retried.

    Args:
        calling: told before each call of the program.

    Raises:
        BackendUnavailable: if the program is missing or Slurm cannot be reached.
        subprocess.CalledProcessError: for any other failure.
    """
    for pause_s in (*pauses_s, None):
        if calling is not None:
            calling()
        try:
            return subprocess.check_output(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                timeout=CALL_TIMEOUT_S,
            )
        except FileNotFoundError:
            raise _missing(command[0]) from None
        except subprocess.TimeoutExpired as err:
            words = own_words(err)
        except subprocess.CalledProcessError as err:
            words = own_words(err)
            if not is_transient(_text(err.stderr)):
                raise
        if pause_s is None:
            break
        logger.debug("`%s` failed, trying again: %s", command[0], words)
        time.sleep(pause_s)
    msg = f"Slurm cannot be reached: `{command[0]}` says: {words}"
    raise BackendUnavailable(msg)


# -- looking ------------------------------------------------------------------------------------


class Queue:
    """The jobs that squeue tells of, asked for at most once a second by the whole process.

    One answer holds all jobs of the user, so that the number of watched ones does not matter.
    """

    def __init__(self, cluster: str = "") -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._jobs: dict[str, NativeJob] = {}
        self._asked = -STALE_S
        """When the last call was made, by the monotonic clock."""
        self._answered: float | None = None
        self._took_s = 0.0
        self._failures = 0
        self._error: BackendUnavailable | None = None
        self._json = True

    def jobs(self, newer_than: float | None = None) -> "dict[str, NativeJob]":
        """All jobs by id.

        Args:
            newer_than: a time of the monotonic clock; wait until an answer from after it may be
                had. ``None`` takes what there is if it is too early to ask again.

        Raises:
            BackendUnavailable: if there is no answer that could be used.
        """
        with self._lock:
            while True:
                now = time.monotonic()
                if now >= self._asked + self._interval_s(urgent=newer_than is not None):
                    self._refresh()
                if newer_than is None or self._asked >= newer_than:
                    break
                wait_s = self._asked + self._interval_s(urgent=True) - time.monotonic()
                time.sleep(max(wait_s, 0.0))
            if self._error is not None:
                fresh = self._answered is not None and now - self._answered < STALE_S
                if not fresh or newer_than is not None:
                    raise self._error
            return self._jobs

    def _interval_s(self, urgent: bool) -> float:
        """Between two calls; somebody waits for an urgent one, as for a job nobody heard of yet."""
        by_load = min(self._took_s * (1 if urgent else LOAD_FACTOR), MAX_INTERVAL_S)
        by_faults = min(2.0**self._failures, MAX_INTERVAL_S) if self._failures else 0.0
        return max(MIN_INTERVAL_S, by_load, by_faults)

    def _refresh(self) -> None:
        try:
            # a process that has an answer can wait for the next one; the first is tried for
            self._jobs = self._ask(() if self._answered is not None else QUEUE_PAUSES_S)
        except BackendUnavailable as err:
            self._failures += 1
            self._error = err
            return
        finally:
            self._took_s = time.monotonic() - self._asked
        self._failures = 0
        self._error = None
        self._answered = time.monotonic()

    def _ask(self, pauses_s: "tuple[float, ...]") -> "dict[str, NativeJob]":
        user = str(os.getuid())
        try:
            if self._json:
                command = _squeue.json_command(user, self._cluster)
                try:
                    return _squeue.parse_json(ask(command, pauses_s, self._calling))
                except subprocess.CalledProcessError as err:
                    if not _squeue.no_json(_text(err.stderr)):
                        raise
                self._json = False
            command = _squeue.text_command(user, self._cluster)
            return _squeue.parse_text(ask(command, pauses_s, self._calling))
        except subprocess.CalledProcessError as err:
            if "invalid job id" in _text(err.stderr).lower():
                return {}
            msg = f"`squeue` failed: {own_words(err)}"
            raise BackendUnavailable(msg) from None
        except UnexpectedReply as err:
            raise BackendUnavailable(str(err)) from None

    def _calling(self) -> None:
        self._asked = time.monotonic()


_queues: "dict[tuple[str, str | None], Queue]" = {}


def queue(cluster: str = "") -> Queue:
    """The jobs of a cluster, shared by all schedulers of this process."""
    key = (cluster, os.environ.get("SLURM_CONF"))
    found = _queues.get(key)
    return found if found is not None else _queues.setdefault(key, Queue(cluster))


def accounting(app_id: str, cluster: str = "") -> NativeJob | None:
    """What sacct knows of a job; ``None`` if that is nothing, or if there is no accounting.

    Raises:
        BackendUnavailable: if there is accounting, and it cannot be reached now.
    """
    text = _ask_sacct(lambda submit: _sacct.describe_command(app_id, submit, cluster))
    return _sacct.parse_describe(text, app_id) if text is not None else None


def accounted_rows() -> "list[ListAppResponse] | None":
    """This user's jobs of TorchX in the last two weeks; ``None`` if there is no accounting."""
    user = str(os.getuid())
    try:
        text = _ask_sacct(lambda submit: _sacct.list_command(user, submit))
    except BackendUnavailable as err:
        logger.warning("only jobs that squeue knows are listed: %s", err)
        return None
    return _sacct.parse_list(text) if text is not None else None


def _ask_sacct(command: "Callable[[bool], list[str]]") -> str | None:
    submit_line = True
    while True:
        try:
            return ask(command(submit_line), RETRY_PAUSES_S[:3])
        except subprocess.CalledProcessError as err:
            if submit_line and _sacct.no_submit_line(_text(err.stderr)):
                submit_line = False
                continue
            logger.debug("sacct: %s", own_words(err))
            return None
        except ProgramNotFound:
            return None


def queued_rows() -> "list[ListAppResponse]":
    """This user's jobs of TorchX that squeue tells of."""
    import pwd

    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = ""
    return _squeue.rows(queue().jobs().values(), user)


# -- changing -----------------------------------------------------------------------------------


def submit(command: "list[str]", token: str) -> "tuple[str, str]":
    """Id and cluster (often empty) of the job that the command submits, never twice.

    The job carries the token: where the answer of sbatch is lost, the job is looked for before
    anything is tried again.

    Raises:
        JobStartError: if Slurm refuses the job.
        BackendUnavailable: if it could not be reached.
    """
    for pause_s in (*RETRY_PAUSES_S, None):
        try:
            done = _run_sbatch(command, token)
            return parse_job_id(_text(done))
        except FileNotFoundError:
            raise _missing(command[0]) from None
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as err:
            words = own_words(err)
            refused = isinstance(err, subprocess.CalledProcessError) and _refused(err)
        except UnexpectedReply as err:
            words, refused = str(err), False
        if refused:
            msg = f"sbatch refused the job: {words}"
            raise JobStartError(msg)
        arrived = not re.search(r"unable to contact|connection refused|standby", words, re.I)
        found = find_token(token, words, LATE_JOB_S if arrived else LOOKS_S)
        if found is not None:
            logger.info("the answer of sbatch was lost (%s), the job is `%s`", words, found)
            return found, ""
        if arrived:
            break  # it may still be on its way: to submit again could make a second job
        if pause_s is not None:
            time.sleep(pause_s)
    msg = (
        f"sbatch failed, and squeue knows no job of it: {words}. "
        f"If one turns up later, its command ends with `torchx:{token}:...`"
    )
    raise BackendUnavailable(msg)


def _refused(err: "subprocess.CalledProcessError") -> bool:
    text = _text(err.stderr)
    if is_transient(text):
        return False
    return bool(re.search(r"^s?batch: error:|Batch job submission failed|^sbatch:", text, re.M))


def _run_sbatch(command: "list[str]", token: str) -> object:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=5 * CALL_TIMEOUT_S,
        ).stdout
    except KeyboardInterrupt:
        found = find_token(token, "interrupted", LOOKS_S)
        if found is not None:
            cancel(found)
        raise


def find_token(token: str, why: str, within_s: float) -> str | None:
    """Id of the job that carries the token; ``None`` if squeue knows none.

    Args:
        why: what sbatch said, for the message.
        within_s: how long the job may take to appear; it is looked for less and less often.

    Raises:
        BackendUnavailable: if squeue cannot be reached, so that nobody can tell.
    """
    deadline = time.monotonic() + within_s
    pause_s = MIN_INTERVAL_S
    while True:
        last = time.monotonic() >= deadline
        try:
            jobs = queue().jobs(newer_than=time.monotonic())
        except BackendUnavailable as err:
            if last or isinstance(err, ProgramNotFound):
                msg = (
                    f"it is not known whether the job was submitted: sbatch said `{why}`, and "
                    f"{err}. The command of the job, if there is one, ends with "
                    f"`torchx:{token}:...`"
                )
                raise BackendUnavailable(msg) from None
            jobs = {}
        for job in jobs.values():
            if f" torchx:{token}:" in job.command:
                return job.app_id
        if last:
            return None
        time.sleep(max(min(pause_s, deadline - time.monotonic()), 0.0))
        pause_s = min(1.5 * pause_s, LATE_JOB_S / 6)


def parse_job_id(stdout: str) -> "tuple[str, str]":
    """Id and cluster in what ``sbatch --parsable`` prints.

    >>> parse_job_id("1234;blue"), parse_job_id("1234")
    (('1234', 'blue'), ('1234', ''))
    """
    lines = stdout.strip().split("\n")
    job_id, _, cluster = lines[-1].strip().partition(";")
    if not (job_id.isascii() and job_id.isdecimal()):
        raise UnexpectedReply("sbatch --parsable", stdout)
    return job_id, cluster


def cancel(app_id: str, cluster: str = "") -> None:
    """Asks for the end of a job.

    Raises:
        BackendUnavailable: if Slurm cannot be reached.
        InvalidInput: if it refuses, as for the job of someone else.
    """
    command = ["scancel", *([f"--clusters={cluster}"] if cluster else []), app_id]
    for pause_s in (*RETRY_PAUSES_S, None):
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=CALL_TIMEOUT_S,
            )
            return
        except FileNotFoundError:
            raise _missing("scancel") from None
        except subprocess.TimeoutExpired as err:
            words = own_words(err)
        except subprocess.CalledProcessError as err:
            words = own_words(err)
            if not is_transient(_text(err.stderr)):
                if re.search(r"already (?:completing|completed)|invalid job id", words, re.I):
                    return
                msg = f"`scancel {app_id}` failed: {words}"
                raise InvalidInput(msg) from None
        if pause_s is not None:
            time.sleep(pause_s)
    msg = f"Slurm cannot be reached: `scancel` says: {words}"
    raise BackendUnavailable(msg)


# -- facts --------------------------------------------------------------------------------------


def sinfo(*arguments: str) -> str | None:
    """What sinfo prints; ``None`` if it is missing or fails, since a dry run does without."""
    try:
        return subprocess.check_output(
            ["sinfo", *arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=CALL_TIMEOUT_S / 4,
        )
    except (OSError, subprocess.SubprocessError) as err:
        logger.debug("sinfo %s: %s", arguments, err)
        return None
