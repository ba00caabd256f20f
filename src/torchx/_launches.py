"""The apps that were launched from here: one line for each, in a file below ``TORCHX_HOME``.

This spares people from typing handles. Nothing else depends on it: a line that cannot be written or
read is ignored.
"""

import os
import time

from torchx._files import replace_file, write_all
from torchx._home import home_dir
from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput

_FILE = "launched"
_DELETED = "-"
_LONGEST_BYTES = 1 << 19
"""About 8,000 launches; of a longer file only the later half is kept."""


@light_dataclass(frozen=True)
class Launch:
    """The record of one launch: the app's handle and the time."""

    handle: str
    time_s: int
    """Seconds since the epoch."""

    @property
    def app_id(self) -> str:
        """The last part of the handle."""
        return self.handle.rpartition("/")[2]


def note_launch(handle: str) -> None:
    """Records an app that has just been launched."""
    _append(f"{int(time.time())} {handle}\n")


def note_deletion(handle: str) -> None:
    """Records that an app was deleted."""
    _append(f"{_DELETED} {handle}\n")


def launches() -> list[Launch]:
    """Returns the apps that were launched from here and not deleted, latest first."""
    try:
        with open(_path(), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except (OSError, InvalidInput):
        return []
    found: dict[str, Launch | None] = {}
    for line in reversed(lines):
        word, _, handle = line.partition(" ")
        if handle in found:
            continue
        if word.isdigit():
            found[handle] = Launch(handle, int(word))
        elif word == _DELETED:
            found[handle] = None
    return [launch for launch in found.values() if launch is not None]


def _append(line: str) -> None:
    if line.count("\n") > 1:
        return
    try:
        path = _path()
        fd = _open(path)
        try:
            write_all(fd, line.encode("utf-8", "replace"))
            size = os.lseek(fd, 0, os.SEEK_CUR)
        finally:
            os.close(fd)
        if size > _LONGEST_BYTES:
            _shorten(path)
    except (OSError, InvalidInput):  # there may be no home directory
        return


def _open(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)


def _shorten(path: str) -> None:
    with open(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    replace_file(path, b"".join(lines[len(lines) // 2 :]), mode=0o600)


def _path() -> str:
    return os.path.join(home_dir(), _FILE)
