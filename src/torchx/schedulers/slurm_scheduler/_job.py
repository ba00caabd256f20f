"""Names of a job's files, and the notes that it and its submitter leave."""

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

_DIRTY = re.compile(r"[^A-Za-z0-9._-]")
RECORD_DIR = ".torchx-slurm-"
"""Prefix of the directory of notes, in the working directory of a job; the user's id follows,
because several users may share it. It has a directory ``<job id>-<token>`` for each job.
"""
MARK = "torchx:"
"""Prefix of the script's argument that identifies jobs of TorchX: ``torchx:<token>:<app>``."""

Key = tuple[int, int]
"""Index of a role in its app, and of a replica in its role."""
_TERM, _KILL = 128 + 15, 128 + 9
_NONE: Mapping[Any, Any] = MappingProxyType({})


def first_bad(
    codes: Mapping[Key, int], ended_ns: Mapping[Key, int], terminated: Collection[Key] = ()
) -> Key | None:
    """Returns the first replica that did not succeed.

    Among notes of the same instant, an exit is more likely the cause than a signal.
    """

    def rank(key: Key) -> tuple[int, bool, Key]:
        signalled = codes[key] in (_TERM, _KILL) or key in terminated
        return ended_ns.get(key, 0), signalled, key

    return min((key for key, code in codes.items() if code), key=rank, default=None)


def safe_name(name: str) -> str:
    """Replaces characters that are invalid in file names and ``#SBATCH`` lines.

    >>> safe_name("train/a b")
    'train_a_b'
    """
    return _DIRTY.sub("_", name)


def log_path(work_dir: str, app_id: str, role: str, k: int, attempt: int, suffix: str) -> str:
    """Returns the path of the log file of one attempt of a replica.

    >>> log_path("/w", "7", "a b", 2, 1, "err")
    '/w/slurm-7-a_b-2.r1.err'
    """
    again = f".r{attempt}" if attempt else ""
    return f"{work_dir}/slurm-{app_id}-{safe_name(role)}-{k}{again}.{suffix}"


def mark(token: str, app_name: str) -> str:
    """Returns the argument of the script that identifies a job as ours.

    >>> mark("x1", "modèle/1")
    'torchx:x1:mod%C3%A8le%2F1'
    """
    if safe_name(app_name) != app_name:
        from urllib.parse import quote  # slow to import, and seldom needed

        app_name = quote(app_name, safe="", errors="replace")
    return f"{MARK}{token}:{app_name}"


def parse_mark(command: str) -> tuple[str, str] | None:
    """Parses token and app name from the command line of a job; ``None`` if it is not ours.

    >>> parse_mark("sbatch --parsable /a/b.sh torchx:x1:train")
    ('x1', 'train')
    """
    word = command.rpartition(" ")[2]
    if not word.startswith(MARK):
        return None
    token, _, name = word[len(MARK) :].partition(":")
    if "%" in name:
        from urllib.parse import unquote

        name = unquote(name)
    return token, name


class RoleNote(NamedTuple):
    """A role of a job, as recorded."""

    name: str
    replicas: int
    image: str = ""
    entrypoint: str = ""
    min_replicas: int | None = None

    @property
    def elastic(self) -> bool:
        """True if there may be fewer replicas, as many as hosts."""
        return self.min_replicas is not None and self.min_replicas < self.replicas


class JobRecord(NamedTuple):
    """The app as it was submitted, without arguments and environment."""

    app: str = ""
    roles: tuple[RoleNote, ...] = ()
    max_retries: int = 0
    end_on_failure: bool = True

    @classmethod
    def from_data(cls, data: object) -> "JobRecord | None":
        """Parses the result of ``record_of``; ``None`` if the data is something else."""
        try:
            roles = [
                RoleNote(
                    str(role["name"]),
                    int(role["replicas"]),
                    str(role.get("image", "")),
                    str(role.get("entrypoint", "")),
                    role.get("min_replicas"),
                )
                for role in data["roles"]  # type: ignore[index]  # the errors of other shapes are caught
            ]
            retries, ends = data.get("max_retries", 0), data.get("end_on_failure", True)  # type: ignore[attr-defined]  # as above
            return cls(str(data.get("app", "")), tuple(roles), int(retries), bool(ends))  # type: ignore[attr-defined]  # as above
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


class JobDir(NamedTuple):
    """The location of a job's files."""

    work_dir: str
    token: str = ""
    """Token of the job; empty if unknown."""
    cluster: str = ""
    """Cluster of a federation; empty for the default one."""
    record: JobRecord | None = None
    """The submitter's record."""


class JobNotes(NamedTuple):
    """The notes of a job's latest attempt."""

    attempt: int = 0
    codes: Mapping[Key, int] = _NONE
    """Exit codes as a shell reports them."""
    ended_ns: Mapping[Key, int] = _NONE
    """Times of the end of replicas that did not succeed."""
    failed_step: tuple[int, int] | None = None
    """Index of the role whose step failed first, and its exit code."""
    hosts: Mapping[int, Sequence[str]] = _NONE
    """The nodes of a role, by its index."""
    terminated: Collection[Key] = ()
    """The replicas that were sent SIGTERM, whatever their exit code."""
    first_bad: Key | None = None
    """The first replica that did not succeed: it ended by itself in a running job."""
    host_of: Mapping[Key, str] = _NONE
    """The node of a replica that may share it with others of its role."""
    errors: Mapping[Key, str] = _NONE
    """Error files of replicas, as JSON on one line."""
    end: int | None = None
    """Exit code of the script; ``None`` if it did not reach its end."""
    over_ns: int = 0
    """Time of the attempt's end."""
    killed: bool = False
    """True if the script was told to end from outside."""
    done: bool = False
    """True if all replicas have ended after that."""
    requeued: bool = False

    @property
    def over(self) -> bool:
        """True if the attempt has ended in any way."""
        return self.end is not None or self.killed or self.requeued

    def was_ended(self, key: Key) -> bool:
        """Returns True if a replica was ended with its job, rather than the cause of its end."""
        if self.codes.get(key) not in (_TERM, _KILL) and key not in self.terminated:
            return False
        return self.killed or key != self.first_bad

    @property
    def replica_failed(self) -> bool:
        """True if a replica failed by itself."""
        return any(code and not self.was_ended(key) for key, code in self.codes.items())

    def failed_alone(self, index: int) -> int | None:
        """Returns the exit code of a role's step if it failed first, by itself; else ``None``."""
        if self.killed or self.failed_step is None or self.failed_step[0] != index:
            return None
        return None if self.replica_failed else self.failed_step[1]
