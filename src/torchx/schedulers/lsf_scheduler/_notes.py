"""The folder of an app: files written before its jobs start, and the jobs' notes."""

import json
import os
from collections.abc import Iterable

from torchx._files import replace_file
from torchx.errors import InvalidInput
from torchx.schedulers._core import records
from torchx.schedulers._core.exits import one_line_json

from ._job import AppRecord, Key, Notes
from ._request import LsfJob

_RECORD = "record.json"


def make_folder(folder: str, record: AppRecord, jobs: Iterable[LsfJob]) -> None:
    """Writes the files that the jobs read.

    Raises:
        InvalidInput: if that is not possible.
    """
    try:
        for name in ("notes", "logs"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        for job in jobs:
            for name, text in job.scripts.items():
                # it holds the environment
                data = text.encode(errors="surrogateescape")
                replace_file(os.path.join(folder, name), data, mode=0o600)
        data = json.dumps(record.to_data()).encode()
        replace_file(os.path.join(folder, _RECORD), data)
    except OSError as err:
        raise _unwritable(folder, err) from None


def make_base(folder: str) -> None:
    """Creates the directory of the option ``jobdir``.

    Raises:
        InvalidInput: if that is not possible.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as err:
        raise _unwritable(folder, err) from None


def _unwritable(folder: str, err: OSError) -> InvalidInput:
    msg = (
        f"option `jobdir`: cannot write `{folder}`: {err.strerror}; give a directory that you may "
        "write to and that all hosts of the cluster share"
    )
    return InvalidInput(msg)


def read_record(folder: str) -> AppRecord | None:
    """Reads the record of a submission; ``None`` if the folder is not visible here."""
    try:
        with open(os.path.join(folder, _RECORD), encoding="utf-8") as f:
            return AppRecord.from_data(json.load(f))
    except (OSError, ValueError):
        return None


def note(folder: str, name: str) -> bool:
    """Writes a note for the jobs and readers; returns False if that is not possible."""
    try:
        with open(os.path.join(folder, "notes", name), "wb"):
            return True
    except OSError:
        return False


def modified_ns(folder: str) -> int:
    """Returns the time of the last note; 0 if there is none."""
    try:
        return os.stat(os.path.join(folder, "notes")).st_mtime_ns
    except OSError:
        return 0


def ends_itself(folder: str) -> bool:
    """Returns True if a failed replica has ended the rest of its app."""
    return os.path.exists(os.path.join(folder, "notes", "ending"))


def read_notes(folder: str, hosts: bool = False, signs_only: bool = False) -> Notes:
    """Reads the notes of all replicas, with one listing of the directory.

    Args:
        hosts: also read the hosts of the replicas, from one file each.
        signs_only: read only file names, without content of files.
    """
    path = os.path.join(folder, "notes")
    try:
        names = os.listdir(path)
    except OSError:
        return Notes()
    found = _Found(path)
    for name in names:
        kind, _, rest = name.partition("-")
        fields = rest.removesuffix(".json").split("-") if rest else []
        if all(field.isdecimal() for field in fields):
            found.take(kind, [int(field) for field in fields])
    return found.notes(hosts, signs_only)


class _Found:
    """Collects notes by their names."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._attempts: dict[Key, int] = {}
        self._codes: dict[tuple[int, int, int], int] = {}
        self._killed: set[tuple[int, int, int]] = set()
        self._signs: set[str] = set()

    def take(self, kind: str, fields: list[int]) -> None:
        """Adds one note."""
        match kind, fields:
            case "start", [i, k, attempt]:
                self._attempts[i, k] = max(attempt, self._attempts.get((i, k), 0))
            case "exit", [i, k, attempt, code]:
                self._codes[i, k, attempt] = code
            case "killed", [i, k, attempt]:
                self._killed.add((i, k, attempt))
            case (("ending" | "unended" | "cancelled"), []):
                self._signs.add(kind)

    def notes(self, hosts: bool, signs_only: bool) -> Notes:
        """Returns the notes of the latest attempts."""
        latest = self._attempts
        codes = {
            (i, k): code
            for (i, k, attempt), code in self._codes.items()
            if latest.get((i, k), 0) == attempt
        }
        bad = [] if signs_only else [key for key, code in codes.items() if code]
        errors = {key: self._read(f"error-{self._id(key)}.json") for key in bad}
        where = [*latest] if hosts else bad
        return Notes(
            attempts=latest,
            codes=codes,
            killed=frozenset((i, k) for i, k, a in self._killed if latest.get((i, k), 0) == a),
            ended_ns={key: self._modified_ns(f"exit-{self._id(key)}-{codes[key]}") for key in bad},
            hosts={key: self._read(f"start-{self._id(key)}").strip() for key in where},
            errors={key: one_line_json(text) for key, text in errors.items() if text},
            ending="ending" in self._signs,
            unended="unended" in self._signs,
            cancelled="cancelled" in self._signs,
        )

    def _id(self, key: Key) -> str:
        return f"{key[0]}-{key[1]}-{self._attempts.get(key, 0)}"

    def _read(self, name: str) -> str:
        try:
            with open(os.path.join(self._path, name), encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def _modified_ns(self, name: str) -> int:
        try:
            return os.stat(os.path.join(self._path, name)).st_mtime_ns
        except OSError:
            return 0


# -- what was submitted from here ---------------------------------------------------------------


def remember(app_id: str, folder: str) -> None:
    """Records a submission for this user, so that it is found after LSF has forgotten it."""
    records.remember("lsf", app_id, {"folder": folder})


def recall(app_id: str) -> str:
    """Returns the recorded folder of an app; empty if there is none."""
    data = records.recall("lsf", app_id)
    folder = data.get("folder") if data is not None else None
    return folder if isinstance(folder, str) else ""
