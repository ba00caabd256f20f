"""Names and marks of an app's jobs, and the notes in the app's folder."""

import re
from collections.abc import Mapping, Sequence

from torchx._startup.dataclass import field, light_dataclass

MARK = "torchx:"
"""Prefix of the description of TorchX's jobs; the app's folder follows."""
_DIRTY = re.compile(r"[^A-Za-z0-9_-]")
_JOB = re.compile(r"(?P<app>[^.\[\]]+)\.(?P<index>\d+|gang)(?:\.[^\[\]]*)?(?:\[.*\])?")
_STEM_MAX = 60

Key = tuple[int, int]
"""Index of a role in its app, and of a replica in its role."""


def clean_app_id(text: str) -> str:
    """Replaces characters that are invalid in ids, and keeps the last 100 characters.

    >>> clean_app_id("Modèle/1-x2")
    'Mod_le_1-x2'
    """
    return _DIRTY.sub("_", text)[-100:].lstrip("-") or "app"


def role_stems(names: Sequence[str]) -> list[str]:
    """Returns short names for files and jobs, one for each role, unique ignoring case.

    >>> role_stems(["a.b", "a-b", "A_B"])
    ['a_b', 'a-b', 'A_B_2']
    """
    stems: list[str] = []
    taken: set[str] = set()
    for index, name in enumerate(names):
        stem = _DIRTY.sub("_", name)[:_STEM_MAX].lstrip("-") or "role"
        base = stem
        while stem.lower() in taken:
            stem = f"{base}_{index}"
            index += len(names)
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def job_name(app_id: str, index: int | None, stem: str = "") -> str:
    """Returns the name of a role's jobs; for ``None``, of the single job of a gang.

    >>> job_name("train-x1", 0, "worker")
    'train-x1.0.worker'
    """
    return f"{app_id}.gang" if index is None else f"{app_id}.{index}.{stem}"


def parse_job_name(name: str) -> tuple[str, int | None] | None:
    """Parses a job's name: app, and index of the role (``None`` for a gang).

    >>> parse_job_name("train-x1.0.worker[3]"), parse_job_name("mine")
    (('train-x1', 0), None)
    """
    found = _JOB.fullmatch(name)
    if found is None:
        return None
    return found["app"], None if found["index"] == "gang" else int(found["index"])


@light_dataclass(frozen=True)
class RoleNote:
    """A role, as recorded in the folder of its app."""

    name: str
    stem: str
    replicas: int
    image: str = ""
    max_retries: int = 0
    min_replicas: int | None = None


@light_dataclass(frozen=True)
class AppRecord:
    """The record of a submission, without arguments and environment."""

    app: str = ""
    roles: tuple[RoleNote, ...] = ()
    end_on_failure: bool = True
    gang: bool = False

    @classmethod
    def from_data(cls, data: object) -> "AppRecord | None":
        """Parses the result of ``to_data``; ``None`` if the data is something else."""
        try:
            assert isinstance(data, dict)
            roles = tuple(RoleNote(**role) for role in data["roles"])
            ends, gang = bool(data["end_on_failure"]), bool(data["gang"])
            return cls(str(data["app"]), roles, ends, gang)
        except (AssertionError, KeyError, TypeError):
            return None

    def to_data(self) -> dict[str, object]:
        """Returns the record as plain data."""
        roles = [dict(vars(role)) for role in self.roles]
        more = {"end_on_failure": self.end_on_failure, "gang": self.gang}
        return {"version": 1, "app": self.app, "roles": roles, **more}


@light_dataclass(frozen=True)
class Notes:
    """The notes that the replicas wrote while they ran."""

    attempts: Mapping[Key, int] = field(default_factory=dict)
    """The latest attempt that was started."""
    codes: Mapping[Key, int] = field(default_factory=dict)
    """Exit codes of the latest attempts that have ended, as a shell reports them."""
    killed: frozenset[Key] = frozenset()
    """Replicas whose latest attempt was told to end by LSF."""
    ended_ns: Mapping[Key, int] = field(default_factory=dict)
    """When attempts ended that did not succeed."""
    hosts: Mapping[Key, str] = field(default_factory=dict)
    errors: Mapping[Key, str] = field(default_factory=dict)
    """Error files, as JSON on one line."""
    ending: bool = False
    """True if the rest of the app is ended, because a replica has failed."""
    unended: bool = False
    """True if the failed replica could not end the rest."""
    cancelled: bool = False
    """True if a user has requested the end."""

    def final(self, key: Key, max_retries: int) -> bool:
        """Returns True if a replica is finished for good, by its own notes."""
        code = self.codes.get(key)
        if code is None:
            return False
        return code == 0 or key in self.killed or self.attempts.get(key, 0) >= max_retries


def log_path(folder: str, stem: str, k: int, attempt: int, suffix: str) -> str:
    """Returns the path of the log file of one attempt of a replica.

    >>> log_path("/w", "worker", 2, 1, "err")
    '/w/logs/worker-2.r1.err'
    """
    again = f".r{attempt}" if attempt else ""
    return f"{folder}/logs/{stem}-{k}{again}.{suffix}"
