"""Finds and reads the notes that a job leaves in its working directory while it runs."""

import functools
import json
import os
from dataclasses import dataclass, field
from typing import NamedTuple

from torchx._files import replace_file
from torchx._home import home_dir

from ._request import safe_name
from ._script import RECORD_DIR

SLURM_JOB_DIRS = ".torchxslurmjobdirs"
"""File in the directory of the submission: a line ``<job id> = <job_dir>`` for each job."""
_TERM, _KILL = 128 + 15, 128 + 9


@dataclass(frozen=True)
class Place:
    """Where the files of a job are."""

    work_dir: str
    token: str = ""
    """Empty if it is not known."""
    cluster: str = ""
    """Of a federation; empty for the default cluster."""
    record: "dict[str, object] | None" = None
    """What the submitter noted; has the keys of ``job.json``."""


@dataclass
class Progress:
    """The notes of a job, of its latest attempt."""

    path: str
    attempt: int = 0
    codes: dict[tuple[int, int], int] = field(default_factory=dict)
    """Exit codes as a shell gives them, by (role index, replica)."""
    hosts: dict[int, list[str]] = field(default_factory=dict)
    """The nodes of a role, by role index."""
    host_of: dict[tuple[int, int], str] = field(default_factory=dict)
    """The node of a replica that may share it with others of its role."""
    end: int | None = None
    """Exit code of the script; ``None`` if it did not come to its end."""
    killed: bool = False
    """Whether the script was asked to end from outside."""
    done: bool = False
    """Whether all replicas have ended after that."""
    requeued: bool = False
    errors: frozenset[str] = frozenset()

    @property
    def over(self) -> bool:
        """Whether the attempt has come to an end in any way."""
        return self.end is not None or self.killed or self.requeued

    @property
    def failures(self) -> "list[tuple[int, int]]":
        """The replicas that failed by themselves, the first failure first."""
        failed = [key for key, code in self.codes.items() if code and not self.was_ended(key)]
        return sorted(failed, key=lambda key: (self.ended_s(key, exact=True), key))

    @property
    def first_failure(self) -> "tuple[int, int] | None":
        """The replica that failed first."""
        return next(iter(self.failures), None)

    def was_ended(self, key: "tuple[int, int]") -> bool:
        """Whether a replica was ended with its job rather than ended the job."""
        if self.codes.get(key) not in (_TERM, _KILL):
            return False
        return self.killed or key != self._first_bad

    @functools.cached_property
    def _first_bad(self) -> "tuple[int, int] | None":
        """The first replica that did not succeed: nothing but itself ended it in a running job."""
        bad = [key for key, code in self.codes.items() if code]
        # notes of the same instant: an exit is a cause rather than a signal is
        return min(
            bad,
            key=lambda k: (self.ended_s(k, exact=True), self.codes[k] in (_TERM, _KILL), k),
            default=None,
        )

    def ended_s(self, key: "tuple[int, int]", exact: bool = False) -> int:
        """When a replica ended, in seconds since the epoch, or in nanoseconds; 0 if unknown."""
        try:
            name = f"exit-{self.attempt}-{key[0]}-{key[1]}-{self.codes[key]}"
            found = os.stat(os.path.join(self.path, name))
        except OSError:
            return 0
        return found.st_mtime_ns if exact else int(found.st_mtime)

    def error_of(self, index: int, k: int) -> str | None:
        """What the error file of a replica holds, JSON on one line; ``None`` if there is none."""
        name = f"error-{self.attempt}-{index}-{k}.json"
        if name not in self.errors:
            return None
        try:
            with open(os.path.join(self.path, name), encoding="utf-8", errors="replace") as f:
                text = f.read()
        except OSError:
            return None
        try:
            return json.dumps(json.loads(text))
        except ValueError:
            return text or None


def notes_dir(place: Place, app_id: str) -> str | None:
    """The directory of a job's notes; ``None`` if there is none yet."""
    base = os.path.join(place.work_dir, f"{RECORD_DIR}{os.getuid()}")
    if place.token:
        path = os.path.join(base, f"{app_id}-{place.token}")
        return path if os.path.isdir(path) else None
    try:
        names = [name for name in os.listdir(base) if name.startswith(f"{app_id}-")]
    except OSError:
        return None
    paths = [os.path.join(base, name) for name in names]
    return max(paths, key=_modified_ns, default=None)


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def read_record(path: str | None) -> "dict[str, object] | None":
    """The roles of a job; ``None`` if they are not noted there."""
    if path is None:
        return None
    try:
        with open(os.path.join(path, "job.json"), encoding="utf-8") as f:
            data = json.load(f)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("roles"), list) else None


def read_progress(path: str) -> Progress:
    """What the names of the notes tell; one look at the directory, however many replicas."""
    progress = Progress(path)
    try:
        names = os.listdir(path)
    except OSError:
        return progress
    notes = []
    for name in names:
        kind, *fields = name.split("-")
        if not fields or not fields[0].isdecimal():
            continue
        attempt = int(fields[0])
        progress.attempt = max(progress.attempt, attempt)
        notes.append((attempt, kind, fields[1:], name))
    errors = set()
    for attempt, kind, fields, name in notes:
        if attempt != progress.attempt:
            continue
        if kind == "error":
            errors.add(name)
        elif kind == "host" and len(fields) > 2 and fields[0].isdecimal() and fields[1].isdecimal():
            progress.host_of[int(fields[0]), int(fields[1])] = "-".join(fields[2:])
        elif all(f.isdecimal() for f in fields):
            _note(progress, kind, [int(f) for f in fields])
    progress.errors = frozenset(errors)
    return progress


def _note(progress: Progress, kind: str, fields: "list[int]") -> None:
    match kind, fields:
        case "exit", [index, k, code]:
            progress.codes[index, k] = code
        case "end", [code]:
            progress.end = code
        case "killed", []:
            progress.killed = True
        case "over", []:
            progress.done = True
        case "requeue", []:
            progress.requeued = True
        case "hosts", [index]:
            name = f"hosts-{progress.attempt}-{index}"
            try:
                with open(os.path.join(progress.path, name), encoding="utf-8") as f:
                    progress.hosts[index] = f.read().split()
            except OSError:
                return


class RoleNote(NamedTuple):
    """A role of a job, as it is noted."""

    name: str
    replicas: int
    image: str
    entrypoint: str
    elastic: bool
    """Whether there may be fewer replicas, as many as there are hosts."""


def roles_of(record: "dict[str, object] | None") -> "list[RoleNote]":
    """The roles that a record tells of."""
    found = []
    roles = record.get("roles") if record else None
    for role in roles if isinstance(roles, list) else ():
        if isinstance(role, dict) and isinstance(role.get("name"), str):
            count = role.get("replicas")
            found.append(
                RoleNote(
                    role["name"],
                    count if isinstance(count, int) else 1,
                    str(role.get("image", "")),
                    str(role.get("entrypoint", "")),
                    bool(role.get("elastic")),
                )
            )
    return found


def log_path(work_dir: str, app_id: str, role: str, k: int, attempt: int, suffix: str) -> str:
    """The log file of one attempt of a replica.

    >>> log_path("/w", "7", "a b", 2, 1, "err")
    '/w/slurm-7-a_b-2.r1.err'
    """
    again = f".r{attempt}" if attempt else ""
    return os.path.join(work_dir, f"slurm-{app_id}-{safe_name(role)}-{k}{again}.{suffix}")


# -- what was submitted from here ---------------------------------------------------------------


def _own_dir() -> str:
    return os.path.join(home_dir(), "slurm")


def remember(app_id: str, place: Place) -> None:
    """Notes a submission for this user, so that it is found when Slurm has forgotten it."""
    folder = _own_dir()
    data = {"dir": place.work_dir, "token": place.token, "cluster": place.cluster}
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, f"{app_id}-{place.token}.json")
        replace_file(path, json.dumps({**data, "record": place.record}).encode())
    except OSError:
        return  # an aid only: Slurm knows the job


def recall(app_id: str) -> Place | None:
    """The latest submission with that id that this user noted."""
    folder = _own_dir()
    try:
        names = [n for n in os.listdir(folder) if n.startswith(f"{app_id}-") and n.endswith("json")]
    except OSError:
        return None
    paths = [os.path.join(folder, name) for name in names]
    path = max(paths, key=_modified_ns, default=None)
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as f:
            data = json.load(f)
        return Place(str(data["dir"]), str(data["token"]), str(data["cluster"]), data.get("record"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_job_dir(job_id: str, job_dir: str) -> None:
    """Notes the directory of a job in the working directory."""
    with open(SLURM_JOB_DIRS, "a", encoding="utf-8") as f:
        f.write(f"{job_id} = {job_dir}\n")


def get_job_dirs() -> dict[str, str]:
    """The noted directories by job id; of two lines for one job the later wins."""
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
