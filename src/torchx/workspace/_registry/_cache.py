"""Files below ``$TORCHX_HOME/cache/images`` that save work; any of them may be missing."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from torchx._home import home_dir
from torchx.errors import BackendUnavailable, TorchXError

_KEEP_S = 30 * 24 * 3600
"""Files that were not used for this time are removed."""
_NEW = ".new-"
_LOCKED_AFTER_S = 60
"""A newer file may not be locked yet."""
_ABANDONED_S = 24 * 3600
"""Age at which an unfinished file counts as abandoned, without locks."""


class Cache:
    """Small files by kind and name, and layers; folders are created on first write.

    Raises:
        InvalidInput: if there is no home directory.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or Path(home_dir(), "cache", "images")

    def path(self, kind: str, name: str) -> Path:
        """Returns the path of a file of that kind, which may not exist."""
        return self._root / kind / name.replace(":", "-")

    def read(self, kind: str, name: str) -> bytes | None:
        """Returns the content; ``None`` if there is none."""
        try:
            return self.path(kind, name).read_bytes()
        except OSError:
            return None

    def read_recent(self, kind: str, age_s: float) -> Iterator[bytes]:
        """Yields the content of files of a kind written in the last ``age_s`` seconds."""
        limit = time.time() - age_s
        with contextlib.suppress(OSError), os.scandir(self._root / kind) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.stat().st_mtime >= limit:
                        yield Path(entry.path).read_bytes()

    def write(self, kind: str, name: str, data: bytes) -> None:
        """Writes the content atomically.

        Raises:
            BackendUnavailable: if it cannot be written, for instance because the disk is full.
        """
        with self.new_file(kind) as (file, keep_as):
            file.write(data)
            keep_as(name)

    @contextlib.contextmanager
    def new_file(self, kind: str) -> "Iterator[tuple[BinaryIO, _KeepAs]]":
        """Creates a file that is removed unless it is given its name.

        Raises:
            BackendUnavailable: if it cannot be written.
        """
        folder = self._root / kind
        try:
            folder.mkdir(parents=True, exist_ok=True)
            number, path = tempfile.mkstemp(dir=folder, prefix=_NEW)
        except OSError as err:
            raise _not_written(str(folder), err) from None
        file = os.fdopen(number, "wb")
        lock = _locked(number)
        keep_as = _KeepAs(self, kind, file, path)
        try:
            yield file, keep_as
        except OSError as err:
            if err.filename is not None or isinstance(err, TorchXError):
                raise  # an error of the source, not of this file
            raise _not_written(str(folder), err) from None
        finally:
            with contextlib.suppress(OSError):
                file.close()
            if not keep_as.kept:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            os.close(lock)

    def touch(self, kind: str, name: str) -> None:
        """Marks a file as used."""
        with contextlib.suppress(OSError):
            os.utime(self.path(kind, name))

    def remove(self, kind: str, name: str) -> None:
        """Removes a file."""
        with contextlib.suppress(OSError):
            self.path(kind, name).unlink()

    def prune(self, kind: str) -> None:
        """Removes files of a kind that were not used for long, or whose writer was killed."""
        now = time.time()
        with contextlib.suppress(OSError), os.scandir(self._root / kind) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    age_s = now - entry.stat().st_mtime
                    new = entry.name.startswith(_NEW)
                    if age_s > _KEEP_S or (new and _is_abandoned(entry.path, age_s)):
                        os.unlink(entry.path)


class _KeepAs:
    """A call that gives a new file its name."""

    def __init__(self, cache: Cache, kind: str, file: BinaryIO, path: str) -> None:
        self.kept = False
        self._cache = cache
        self._kind = kind
        self._file = file
        self._path = path

    def __call__(self, name: str) -> None:
        self._file.close()  # the buffered rest may not fit on the disk
        os.replace(self._path, self._cache.path(self._kind, name))
        self.kept = True


def _locked(number: int) -> int:
    """Returns a descriptor that locks a new file until it is closed or the process ends."""
    import fcntl

    lock = os.dup(number)
    with contextlib.suppress(OSError):  # not every file system has locks
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _is_abandoned(path: str, age_s: float) -> bool:
    """Returns True if no process is writing a new file any more."""
    import fcntl

    if age_s < _LOCKED_AFTER_S:
        return False
    number = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return age_s > _ABANDONED_S
    finally:
        os.close(number)
    return True


def _not_written(where: str, err: OSError) -> BackendUnavailable:
    return BackendUnavailable(
        f"cannot write to `{where}`: {err.strerror or err}; free some space there, or set"
        " TORCHX_HOME to a directory elsewhere"
    )
