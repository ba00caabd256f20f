"""Submits a job exactly once, even if the answer of ``sbatch`` is lost."""

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    CommandFailed,
    JobStartError,
    ProgramNotFound,
    TorchXError,
    UnexpectedReply,
)
from torchx.schedulers._core.command import Waiting
from torchx.schedulers._core.interrupting import sigterm_raises

from ._client import MIN_INTERVAL_S, PROGRAMS, RETRY_PAUSES_S, cancel, queue

logger = get_logger(__name__)

SBATCH_TIMEOUT_S = 300.0
LOOKS_S = 2.0
"""Seconds to look for a job that the controller has probably not accepted."""
UNKNOWN_WORDS_S = 10.0
"""Seconds to look for a job that sbatch could not submit, for an unknown reason."""
LATE_JOB_S = 30.0
"""Seconds to look for a job that the controller may be about to accept."""

_NOT_ARRIVED = "(?i)unable to contact|connection refused|standby"
UNCONFIGURED = "(?i)fetch_config|configuration source|unable to process configuration file"
"""Slurm's words for a host on which its programs do not learn where the controller is."""
_REFUSAL = (
    "(?i)invalid|unrecognized|unknown option|not permitted|denied|not allowed|not authorized|"
    "exceed|limit|violates|requested|no such|does not exist|unavailable|can ?not be satisfied|"
    "refused|line breaks|unable to open|must be|requires?|ambiguous|empty|not found|too many|"
    "too large"
)
"""Slurm's messages for an invalid job, which was therefore not submitted."""


def submit(command: list[str], token: str) -> tuple[str, str]:
    """Submits a job, never twice; returns its id and cluster (often empty).

    The job carries the token: if the answer of sbatch is lost, the job is looked for before a
    retry.

    Raises:
        JobStartError: if Slurm refuses the job.
        BackendUnavailable: if it could not be reached.
    """
    waiting = Waiting()
    for pause_s in (*RETRY_PAUSES_S, None):
        try:
            return parse_job_id(PROGRAMS.run(command, timeout_s=SBATCH_TIMEOUT_S))
        except ProgramNotFound:
            raise
        except CommandFailed as err:
            _check_refusal(err, token)
            words, arrived = str(err), True
        except (BackendUnavailable, UnexpectedReply) as err:
            words = str(err)
            arrived = not re.search(_NOT_ARRIVED, words)
        waiting.report(words)
        found = _find_again(token, words, arrived)
        if found is not None:
            logger.info("the answer of sbatch was lost (%s), the job is `%s`", words, found)
            return found, ""
        if arrived:
            break  # it may still be on its way: a retry could create a second job
        if pause_s is not None:
            time.sleep(pause_s)
    msg = (
        f"sbatch failed, and squeue knows no job of it: {words}. "
        f"If one turns up later, its command ends with `torchx:{token}:...`"
    )
    raise BackendUnavailable(msg)


def _check_refusal(err: CommandFailed, token: str) -> None:
    """Raises if there is no job for sure.

    For an unknown message, squeue is queried first.

    Raises:
        JobStartError: if Slurm refused the job.
        BackendUnavailable: if sbatch could not tell Slurm of the job.
    """
    if err.exit_code < 0 or not err.stderr:
        return
    if re.search(UNCONFIGURED, err.stderr):
        msg = (
            "nothing was submitted: Slurm is not configured on this host; run this on a login"
            f" node of the cluster, or set SLURM_CONF (sbatch said: {err.stderr})"
        )
        raise BackendUnavailable(msg) from None
    if re.search(_REFUSAL, err.stderr) or find_token(token, err.stderr, UNKNOWN_WORDS_S) is None:
        msg = f"sbatch refused the job: {err.stderr}"
        raise JobStartError(msg) from None


def _find_again(token: str, words: str, arrived: bool) -> str | None:
    if arrived:
        return find_token(token, words, LATE_JOB_S)
    try:
        return find_token(token, words, 0.0)
    except BackendUnavailable:  # as expected
        return None


def find_token(token: str, why: str, within_s: float) -> str | None:
    """Returns the id of the job with the token; ``None`` if squeue knows none.

    Args:
        why: sbatch's message, for our error.
        within_s: seconds that the job may take to appear; the pauses between queries grow.

    Raises:
        BackendUnavailable: if squeue cannot be reached, so that this is unknown.
    """
    deadline = time.monotonic() + within_s
    pause_s = MIN_INTERVAL_S
    waiting = Waiting()
    while True:
        last = time.monotonic() >= deadline
        try:
            jobs = queue().jobs(newer_than=time.monotonic(), patient=False)
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
        waiting.report(f"the answer of sbatch was lost ({why}), looking for the job")
        time.sleep(max(min(pause_s, deadline - time.monotonic()), 0.0))
        pause_s = min(1.5 * pause_s, LATE_JOB_S / 6)


def parse_job_id(stdout: str) -> tuple[str, str]:
    """Parses id and cluster from the output of ``sbatch --parsable``.

    >>> parse_job_id("1234;blue"), parse_job_id("1234")
    (('1234', 'blue'), ('1234', ''))
    """
    lines = stdout.strip().split("\n")
    job_id, _, cluster = lines[-1].strip().partition(";")
    if not (job_id.isascii() and job_id.isdecimal()):
        raise UnexpectedReply("sbatch --parsable", stdout)
    return job_id, cluster


def temporary_folder() -> AbstractContextManager[str]:
    """Returns a folder for the script of a job without a ``job_dir``."""
    import tempfile  # 3 ms saved for commands that submit nothing

    return tempfile.TemporaryDirectory(prefix="torchx-sbatch-")


@contextmanager
def undone_by_signals(token: str) -> Iterator[None]:
    """Ends the job submitted inside if SIGINT or SIGTERM arrives before everything is done."""
    with sigterm_raises():
        try:
            yield
        except BaseException as err:
            if not isinstance(err, Exception):
                _undo_submission(token)
            raise


def _undo_submission(token: str) -> None:
    """Ends the job if it was submitted."""
    try:
        found = find_token(token, "interrupted", LOOKS_S)
        if found is not None:
            cancel([found])
            logger.warning("interrupted while job `%s` was submitted: it is cancelled", found)
    except TorchXError as err:
        logger.error("interrupted while a job was submitted, which may run: %s", err)
