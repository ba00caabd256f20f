"""Files that several processes read and write at once."""

import os
import sys
from collections.abc import Callable

if sys.platform != "win32":  # trackers run there too, without locks
    import fcntl

_TAIL_BYTES = 65536
_NO_LOCKS = "this system has no file locks"


def take_lock(fd: int) -> None:
    """Locks an open file or folder until it is closed, as soon as no other process holds it.

    Raises:
        OSError: if the file system has no locks.
    """
    if sys.platform == "win32":
        raise OSError(_NO_LOCKS)
    fcntl.flock(fd, fcntl.LOCK_EX)


def wait_for_lock(fd: int) -> bool:
    """Takes the lock as ``take_lock`` does; returns False if the file system has no locks."""
    try:
        take_lock(fd)
    except OSError:  # the error of some network file systems
        return False
    return True


def try_lock(fd: int) -> bool:
    """Tries to lock an open file or folder until it is closed; False if another process holds it.

    Raises:
        OSError: if the file system has no locks.
    """
    if sys.platform == "win32":
        raise OSError(_NO_LOCKS)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # `EACCES` is how network file systems report it
        return False
    return True


class exclusive_lock:
    """Lets one process at a time into its block; entering gives True if the lock is held.

    Entering gives False if the file cannot be opened or the file system has no locks.

    Args:
        path: of a file, which is created if missing and kept, or of a folder.
        waiting: called if another process holds the lock.
    """

    def __init__(self, path: str, waiting: Callable[[], None] | None = None) -> None:
        self._path = path
        self._waiting = waiting
        self._fd = -1

    def __enter__(self) -> bool:
        try:
            self._fd = _open_for_lock(self._path)
        except OSError:
            return False
        try:
            return self._lock()
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> bool:
        try:
            if try_lock(self._fd):
                return True
        except OSError:
            return False
        if self._waiting is not None:
            self._waiting()
        return wait_for_lock(self._fd)

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _open_for_lock(path: str) -> int:
    if os.path.isdir(path):
        return os.open(path, os.O_RDONLY)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def write_all(fd: int, data: bytes) -> None:
    """Writes every byte, however many calls that takes."""
    written = os.write(fd, data) if data else 0
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def replace_file(path: str, data: bytes, *, mode: int | None = None) -> None:
    """Replaces a file's content atomically: readers see the old or the new content, never a part.

    Several processes may do so at once, also on several machines; the last one wins. The temporary
    file beside it is removed on failure.

    Args:
        mode: permissions of the file from its first byte on, ``0o600`` for secrets; ``None`` for
            those of any new file.

    Raises:
        OSError: if it cannot be written; the file is as it was.
    """
    new = f"{path}.{os.urandom(6).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    fd = os.open(new, flags, 0o666 if mode is None else mode)
    try:
        try:
            write_all(fd, data)
            if mode is not None:
                os.chmod(new, mode)  # whatever the umask
        finally:
            os.close(fd)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def last_lines(path: str, count: int) -> list[str]:
    """Returns the last non-empty lines of a file; empty if it cannot be read.

    Only the last 64 KiB of the file are read.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    return lines[-count:] if count > 0 else []
