"""Results of jobs by key; a job writes them, whoever launched it reads them."""

import abc
import json
from typing import Any

from torchx._filesystem import filesystem

KeyType = int | str
ResultType = int | float | str

# also for a key that is the parent of another one, `x` and `x/y`; fsspec's memory file system
# raises the last
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, FileExistsError)


class ResultTracker(abc.ABC):
    """Stores results, which are flat dicts, by key."""

    def __getitem__(self, key: KeyType) -> dict[str, ResultType]:
        return self.get(key)

    def __setitem__(self, key: KeyType, results: dict[str, ResultType]) -> None:
        self.put(key, **results)

    @abc.abstractmethod
    def put(self, key: KeyType, **results: ResultType) -> None:
        """Stores the results of a key, replacing earlier ones."""

    @abc.abstractmethod
    def get(self, key: KeyType) -> dict[str, ResultType]:
        """The results of a key; empty if there are none."""


class FsspecResultTracker(ResultTracker):
    """Keeps each key in a JSON file of its own, on any file system that fsspec knows.

    Keys ``1`` and ``"1"`` are the same.

    Args:
        tracker_base: path or URL of the folder; made when something is stored.
    """

    def __init__(self, tracker_base: str) -> None:
        self._tracker_base = tracker_base

    def __setitem__(self, key: KeyType, results: dict[str, ResultType]) -> None:
        self._write(key, results)  # not through keywords: a result may be named `key`

    def put(self, key: KeyType, **results: ResultType) -> None:
        """Stores the results; a reader sees the old ones or the new ones, never a part."""
        self._write(key, results)

    def get(self, key: KeyType) -> dict[str, ResultType]:
        """The results of a key; empty if there are none."""
        fs, path = self._locate(key)
        try:
            with fs.open(path, "r", encoding="utf-8") as f:
                results: dict[str, ResultType] = json.load(f)
        except _NO_FILE:
            return {}
        return results

    def _write(self, key: KeyType, results: dict[str, ResultType]) -> None:
        for name in results:
            if not isinstance(name, str):
                msg = f"names of results must be text, given: {name!r}"
                raise TypeError(msg)
        text = json.dumps(results, indent=2)
        fs, path = self._locate(key)
        fs.makedirs(fs._parent(path), exist_ok=True)
        with fs.transaction, fs.open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def _locate(self, key: KeyType) -> tuple[Any, str]:
        fs, base = filesystem(self._tracker_base)
        return fs, f"{base.rstrip('/')}/{key}"
