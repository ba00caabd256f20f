"""Finds and reads the notes that a job writes into its working directory."""

import json
import os
from collections.abc import Mapping

from torchx._files import last_lines
from torchx.errors import InvalidInput
from torchx.schedulers._core import records
from torchx.schedulers._core.exits import one_line_json

from ._job import RECORD_DIR, JobDir, JobNotes, JobRecord, Key, first_bad, parse_mark
from ._states import NativeJob

SLURM_JOB_DIRS = ".torchxslurmjobdirs"
"""File in the directory of the submission, with a line ``<job id> = <job_dir>`` for each job."""
_WORDS_LINES = 3
_WORDS_MAX = 500


# -- where the notes are ------------------------------------------------------------------------


def find_job_dir(app_id: str, native: NativeJob | None, noted: JobDir | None) -> JobDir | None:
    """Returns the location of a job's files, as its submitter recorded it or Slurm reports it.

    Args:
        noted: this user's record of a job with that id, which may be of another cluster.
    """
    mark = parse_mark(native.command) if native is not None else None
    if noted is not None and (mark is None or mark[0] == noted.token):
        return noted
    token = mark[0] if mark is not None else ""
    if native is not None and native.work_dir:
        return JobDir(native.work_dir, token)
    saved = get_job_dirs().get(app_id)
    if saved is not None:
        return JobDir(os.path.abspath(saved), token)
    here = JobDir(os.getcwd(), token)
    return here if native is not None or notes_dir(here, app_id) else None


def notes_dir(job_dir: JobDir, app_id: str) -> str | None:
    """Returns the directory of a job's notes; ``None`` if there is none yet."""
    base = _base(job_dir.work_dir)
    if job_dir.token:
        path = os.path.join(base, f"{app_id}-{job_dir.token}")
        return path if os.path.isdir(path) else None
    try:
        names = [name for name in os.listdir(base) if name.startswith(f"{app_id}-")]
    except OSError:
        return None
    return max((os.path.join(base, name) for name in names), key=modified_ns, default=None)


def make_notes_base(work_dir: str) -> None:
    """Creates the directory in which the job will create that of its notes.

    Raises:
        InvalidInput: if that is not possible: the job could not write logs either.
    """
    try:
        os.makedirs(_base(work_dir), mode=0o700, exist_ok=True)
    except OSError as err:
        msg = (
            f"the job cannot write its logs into its working directory `{work_dir}` "
            f"({err.strerror}); set the option `job_dir` to a directory that you may write to"
        )
        raise InvalidInput(msg) from None


def _base(work_dir: str) -> str:
    return os.path.join(work_dir, f"{RECORD_DIR}{os.getuid()}")


def modified_ns(path: str | None) -> int:
    """Returns the time of the last change of a file or directory; 0 if it does not exist."""
    try:
        return os.stat(path).st_mtime_ns if path is not None else 0
    except OSError:
        return 0


# -- what they tell -----------------------------------------------------------------------------


def read_record(path: str | None) -> JobRecord | None:
    """Reads the app as it was submitted; ``None`` if it is not recorded there."""
    if path is None:
        return None
    try:
        with open(os.path.join(path, "job.json"), encoding="utf-8") as f:
            return JobRecord.from_data(json.load(f))
    except (OSError, ValueError):
        return None


def read_notes(path: str, signs_only: bool = False) -> JobNotes:
    """Reads the notes of the latest attempt, with one listing of the directory.

    Args:
        signs_only: read only file names, without content of files.
    """
    try:
        names = os.listdir(path)
    except OSError:
        return JobNotes()
    notes = []
    for name in names:
        kind, *fields = name.split("-")
        if fields and fields[0].isdecimal():
            notes.append((int(fields[0]), kind, fields[1:], name))
    latest = max((attempt for attempt, *_ in notes), default=0)
    found = _Found(path, latest, signs_only)
    for attempt, kind, fields, name in notes:
        if attempt == latest:
            found.note(kind, fields, name)
    return found.notes()


def over_ns(job_dir: JobDir, app_id: str) -> int:
    """Returns when the latest attempt ended; 0 if it goes on, or has no notes."""
    path = notes_dir(job_dir, app_id)
    return read_notes(path, signs_only=True).over_ns if path is not None else 0


class _Found:
    """Collects the notes of one attempt."""

    def __init__(self, path: str, attempt: int, signs_only: bool) -> None:
        self._path = path
        self._attempt = attempt
        self._signs_only = signs_only
        self._codes: dict[Key, int] = {}
        self._bad_steps: list[tuple[int, int, int]] = []
        """Time of the end, role and exit code."""
        self._terminated: set[Key] = set()
        self._hosts: dict[int, list[str]] = {}
        self._host_of: dict[Key, str] = {}
        self._error_files: dict[Key, str] = {}
        self._end: int | None = None
        self._signs: dict[str, str] = {}
        """The names of notes, by kind."""

    def note(self, kind: str, fields: list[str], name: str) -> None:
        """Adds one note, by its name."""
        if kind == "host" and len(fields) > 2 and fields[0].isdecimal() and fields[1].isdecimal():
            self._host_of[int(fields[0]), int(fields[1])] = "-".join(fields[2:])
            return
        if kind == "error" and len(fields) == 2:
            fields = [fields[0], fields[1].removesuffix(".json")]
        if all(field.isdecimal() for field in fields):
            self._note(kind, [int(field) for field in fields], name)

    def _note(self, kind: str, fields: list[int], name: str) -> None:
        match kind, fields:
            case "exit", [index, k, code]:
                self._codes[index, k] = code
            case "ended", [index, k]:
                self._terminated.add((index, k))
            case "error", [index, k]:
                self._error_files[index, k] = name
            case "role", [index, code] if code and not self._signs_only:
                self._bad_steps.append((modified_ns(self._at(name)), index, code))
            case "hosts", [index] if not self._signs_only:
                self._hosts[index] = (self._read(name) or "").split()
            case "end", [code]:
                self._end = code
                self._signs[kind] = name
            case (("killed" | "over" | "requeue"), []):
                self._signs[kind] = name

    def notes(self) -> JobNotes:
        """Returns the notes."""
        bad = {} if self._signs_only else {key: code for key, code in self._codes.items() if code}
        errors = {key: self._read(self._error_files.get(key)) for key in bad}
        ended_ns = {
            (i, k): modified_ns(self._at(f"exit-{self._attempt}-{i}-{k}-{code}"))
            for (i, k), code in bad.items()
        }
        return JobNotes(
            attempt=self._attempt,
            codes=self._codes,
            ended_ns=ended_ns,
            terminated=self._terminated,
            first_bad=first_bad(bad, ended_ns, self._terminated),
            failed_step=min(self._bad_steps)[1:] if self._bad_steps else None,
            hosts=self._hosts,
            host_of=self._host_of,
            errors={key: one_line_json(text) for key, text in errors.items() if text},
            end=self._end,
            over_ns=max((modified_ns(self._at(name)) for name in self._signs.values()), default=0),
            killed="killed" in self._signs,
            done="over" in self._signs,
            requeued="requeue" in self._signs,
        )

    def _at(self, name: str) -> str:
        return os.path.join(self._path, name)

    def _read(self, name: str | None) -> str | None:
        if name is None:
            return None
        try:
            with open(self._at(name), encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return None


def batch_words(job_dir: JobDir, app_id: str) -> str:
    """Returns Slurm's messages from the job's output, without those of our script; on one line."""
    lines = last_lines(os.path.join(job_dir.work_dir, f"slurm-{app_id}.out"), 20)
    own = ("job exited with code ", "role ")
    others = [line for line in lines if not line.startswith(own)]
    return "; ".join(others[-_WORDS_LINES:])[:_WORDS_MAX]


# -- what was submitted from here ---------------------------------------------------------------


def remember(app_id: str, job_dir: JobDir, record: Mapping[str, object]) -> None:
    """Records a submission for this user, so that it is found after Slurm has forgotten it."""
    data = {"dir": job_dir.work_dir, "token": job_dir.token, "cluster": job_dir.cluster}
    records.remember("slurm", app_id, {**data, "record": record})


def recall(app_id: str) -> JobDir | None:
    """Returns this user's latest recorded submission with that id."""
    data = records.recall("slurm", app_id)
    if data is None or not isinstance(data.get("dir"), str):
        return None
    record = JobRecord.from_data(data.get("record"))
    return JobDir(
        str(data["dir"]), str(data.get("token", "")), str(data.get("cluster", "")), record
    )


def save_job_dir(job_id: str, job_dir: str) -> None:
    """Records the directory of a job in the working directory."""
    with open(SLURM_JOB_DIRS, "a", encoding="utf-8") as f:
        f.write(f"{job_id} = {job_dir}\n")


def get_job_dirs() -> dict[str, str]:
    """Returns the recorded directories by job id; later lines win."""
    try:
        with open(SLURM_JOB_DIRS, encoding="utf-8", errors="replace") as f:
            lines = f.read().split("\n")
    except OSError:
        return {}
    found = {}
    for line in lines:
        job_id, equals, path = line.partition("=")
        if equals and job_id.strip() and path.strip():
            found[job_id.strip()] = path.strip()
    return found
