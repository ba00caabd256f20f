"""All calls of LSF's programs."""

import os
import re
import threading
import time
from collections.abc import Sequence

from torchx._retry import with_retries
from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    CommandFailed,
    InvalidInput,
    JobStartError,
    ProgramNotFound,
    UnexpectedReply,
)
from torchx.schedulers._core.command import BackendPrograms, Waiting
from torchx.schedulers._core.interrupting import sigterm_raises

from . import _parse
from ._request import LsfJob
from ._states import Row

logger = get_logger(__name__)

MIN_INTERVAL_S = 2.0
"""Seconds between two calls of bjobs by this process, whatever the number of apps."""
TIMEOUT_S = 30.0
"""Timeout in seconds: LSF's programs wait forever for an unreachable daemon."""
RETRY_PAUSES_S = (0.5, 1.0, 2.0)

_TRANSIENT = re.compile(
    r"LSF is down|please wait|cannot connect to LSF|batch daemon not responding|"
    r"mbatchd (?:is )?(?:down|not)|cannot (?:open|get) .*LIM|LIM is (?:down|not)|"
    r"communication time ?out|connection (?:refused|reset)|request from .* timed out|"
    r"master (?:LIM|batch) .*(?:unknown|down|not)|concurrent query limit|resource temporarily",
    re.IGNORECASE,
)


def is_transient(text: str) -> bool:
    """Returns True if a retry may succeed."""
    return bool(_TRANSIENT.search(text))


PROGRAMS = BackendPrograms(
    "LSF",
    "LSF's programs must be on PATH: source its profile, or run this on a host of the cluster",
    is_transient,
)


# -- bjobs --------------------------------------------------------------------------------------


class JobTable:
    """The jobs that bjobs lists, queried at most every two seconds by the whole process.

    One answer has all of this user's TorchX jobs, so the number of apps does not matter.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apps: dict[str, list[Row]] = {}
        self._asked = -MIN_INTERVAL_S
        """When the last call was made, by the monotonic clock."""
        self._error: BackendUnavailable | None = None

    def apps(self, newer_than: float | None = None) -> dict[str, list[Row]]:
        """Returns the jobs of each app.

        Args:
            newer_than: a time of the monotonic clock; waits for an answer newer than it. ``None``
                accepts the cached one if it is too early to query again.

        Raises:
            BackendUnavailable: if there is no answer.
        """
        called = time.monotonic()
        with self._lock:
            if self._error is not None:
                newer_than = called  # an earlier failure does not concern this call
            due = self._asked + MIN_INTERVAL_S
            stale = newer_than is not None and self._asked < newer_than
            if stale and time.monotonic() < due:
                time.sleep(due - time.monotonic())
            if time.monotonic() >= due:
                self._refresh()
            if self._error is not None:
                raise self._error
            return self._apps

    def _refresh(self) -> None:
        self._asked = time.monotonic()
        try:
            self._apps = _parse.by_app(_bjobs())
            self._error = None
        except BackendUnavailable as err:
            self._error = err


_tables: dict[str | None, JobTable] = {}


def table() -> JobTable:
    """Returns the jobs of this process's cluster."""
    key = os.environ.get("LSF_ENVDIR")
    found = _tables.get(key)
    return found if found is not None else _tables.setdefault(key, JobTable())


_FORMS: tuple[tuple[Sequence[str], bool], ...] = (
    (_parse.FIELDS, True),
    (_parse.FIELDS, False),
    (_parse.OLD_FIELDS, False),
)
"""Output formats to request, those of the newest version first."""
_known_forms: dict[str | None, int] = {}


def _bjobs(name: str | None = None) -> list[Row]:
    cluster = os.environ.get("LSF_ENVDIR")
    while True:
        form = _known_forms.get(cluster, 0)
        fields, as_json = _FORMS[form]
        command = _parse.bjobs_command(fields, as_json, name)
        try:
            text = PROGRAMS.ask(command, timeout_s=TIMEOUT_S, pauses_s=())
            return _parse.parse_json(text) if as_json else _parse.parse_text(text, fields)
        except CommandFailed as err:
            if _parse.no_such_job(err.stderr):
                return []
            if form + 1 == len(_FORMS) or not _parse.no_such_output(err.stderr):
                raise BackendUnavailable(str(err)) from None
            _known_forms[cluster] = form + 1
        except UnexpectedReply as err:
            raise BackendUnavailable(str(err)) from None


def history(app_id: str) -> list[Row]:
    """Returns bhist's records of the jobs of an app that bjobs has forgotten."""
    try:
        text = PROGRAMS.ask(_parse.bhist_command(app_id), pauses_s=())
    except CommandFailed as err:
        logger.debug("%s", err)
        return []
    return [row for row in _parse.parse_bhist(text) if row.app_id == app_id]


# -- bsub ---------------------------------------------------------------------------------------


def submit(jobs: Sequence[LsfJob]) -> list[str]:
    """Submits all jobs of an app and returns their ids; rolls back if one is refused.

    Raises:
        JobStartError: if LSF refuses one, with its message.
        BackendUnavailable: if it cannot be reached.
    """
    with sigterm_raises():
        return _submit_all(jobs)


def _submit_all(jobs: Sequence[LsfJob]) -> list[str]:
    ids: list[str] = []
    try:
        for job in jobs:
            ids.append(_submit(job))
    except BaseException as err:  # also for a signal: jobs submitted so far must not run alone
        if ids or not isinstance(err, CommandFailed):
            _undo_submission(job.app_id, RETRY_PAUSES_S if ids else ())
        if isinstance(err, CommandFailed):
            msg = f"LSF refused the job `{job.name}`: {err.stderr}{_hint(err.stderr)}"
            raise JobStartError(msg) from None
        raise
    return ids


def _submit(job: LsfJob) -> str:
    """Submits one job; after a lost answer, looks for its name before a retry."""
    waiting = Waiting()
    for pause_s in (*RETRY_PAUSES_S, None):
        try:
            return _parse.parse_submitted(PROGRAMS.run(job.argv, timeout_s=TIMEOUT_S))
        except ProgramNotFound:
            raise
        except (BackendUnavailable, UnexpectedReply) as err:
            found = with_retries(lambda: _bjobs(job.name), RETRY_PAUSES_S, waiting.transient)
            if found:
                return found[0].job_id
            if pause_s is None or not waiting.transient(err):
                raise
            time.sleep(pause_s)
    raise AssertionError  # the last turn returns or raises


def _hint(words: str) -> str:
    if re.search(r"array", words, re.IGNORECASE):
        return (
            "; the cluster limits the size of arrays (MAX_JOB_ARRAY_SIZE): give the role fewer "
            "replicas, or run the app as one job with option `gang`"
        )
    return ""


def _undo_submission(app_id: str, pauses_s: Sequence[float]) -> None:
    """Ends the submitted jobs of an app, by name: the last one may exist without our knowledge."""
    try:
        with_retries(lambda: _bkill(["-J", f"{app_id}.*", "0"]), pauses_s)
    except ProgramNotFound:
        return  # then nothing was submitted either
    except (BackendUnavailable, InvalidInput) as err:
        logger.error(
            "jobs of `%s` may have been submitted and could not be ended (`bkill -J '%s.*' 0`): %s",
            app_id,
            app_id,
            err,
        )


# -- bkill --------------------------------------------------------------------------------------


def end(ids: Sequence[str]) -> None:
    """Requests the end of jobs; idempotent.

    Raises:
        BackendUnavailable: if LSF cannot be reached.
        InvalidInput: if LSF refuses, for example for jobs of other users.
    """
    with_retries(lambda: _bkill(ids), RETRY_PAUSES_S, Waiting().transient)


def _bkill(words: Sequence[str]) -> None:
    command = ["bkill", *words]
    try:
        PROGRAMS.run(command, timeout_s=TIMEOUT_S)
    except CommandFailed as err:
        if _parse.is_over(err.stderr):
            return
        msg = f"`{' '.join(command)}` failed: {err.stderr}"
        raise InvalidInput(msg) from None
