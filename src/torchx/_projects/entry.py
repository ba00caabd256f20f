"""A file, folder or link of a workspace, and its content."""

import os
from collections.abc import Iterable
from typing import BinaryIO, Literal

from torchx._filesystem import filesystem
from torchx._startup.lazy_logger import get_logger
from torchx.errors import UnreadableWorkspace

Kind = Literal["file", "dir", "link"]

WARN_ABOVE_BYTES = 1 << 30

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

LEAVE_OUT = (
    "leave it out with a line in the ignore file of its project: `.torchxignore`, or"
    " `.dockerignore` if the project has only that"
)
"""Advice about a file; if both exist, the second is not read."""

logger = get_logger(__name__)


class Entry:
    """A file, folder or link of a workspace.

    Args:
        path: where it goes, relative to the root, with ``/`` and without ``./``.
        kind: file, folder or link.
        mode: permission bits.
        size: of a file, in bytes; 0 for others.
        target: of a link; ``None`` for others.
        source: local path or URL that a file is read from; ``""`` if ``content`` is what it holds.
        content: of a file that has no source; ``None`` for others.
        status: of a local file when it was found, to detect later changes; ``None`` for others.

    Attributes:
        link_source: a local file with the same content, which a copy may link to; ``""`` if there
            is none.
    """

    __slots__ = (
        "content",
        "kind",
        "link_source",
        "mode",
        "path",
        "size",
        "source",
        "status",
        "target",
    )

    def __init__(
        self,
        path: str,
        kind: Kind,
        mode: int,
        size: int = 0,
        target: str | None = None,
        source: str = "",
        content: bytes | None = None,
        status: os.stat_result | None = None,
    ) -> None:
        self.path = path
        self.kind = kind
        self.mode = mode
        self.size = size
        self.target = target
        self.source = source
        self.content = content
        self.status = status
        self.link_source = ""

    def __repr__(self) -> str:
        arrow = f" -> {self.target}" if self.kind == "link" else ""
        return f"<{self.kind} {self.path}{arrow} {self.mode:o} {self.size}>"

    def identity(self) -> tuple[object, ...]:
        """A key that changes whenever the file at ``source`` does, as far as its status shows."""
        status = self.status
        seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino) if status else ()
        return (self.path, self.kind, self.mode, self.size, self.target, self.source, *seen)


def open_entry(entry: Entry) -> BinaryIO:
    """Opens a file for reading.

    Raises:
        UnreadableWorkspace: if it is gone or cannot be read.
    """
    if entry.content is not None:
        import io

        return io.BytesIO(entry.content)
    try:
        if "://" in entry.source:
            fs, path = filesystem(entry.source)
            opened: BinaryIO = fs.open(path, "rb")
            return opened
        return os.fdopen(os.open(entry.source, _READ), "rb", buffering=0)
    except OSError as err:
        raise unreadable(entry.source, err) from err


def read_small(entry: Entry) -> bytes:
    """Returns the current content of a local file, with as few system calls as possible.

    Raises:
        UnreadableWorkspace: if it is gone or cannot be read.
    """
    try:
        file = os.open(entry.source, _READ)
        try:
            data = os.read(file, entry.size + 1)
            if len(data) != entry.size:  # it changed, or the read was short
                while more := os.read(file, 1 << 20):
                    data += more
            return data
        finally:
            os.close(file)
    except OSError as err:
        raise unreadable(entry.source, err) from err


def summary(entries: Iterable[Entry]) -> tuple[int, int]:
    """Returns the number of files and links, and their total bytes."""
    files = total = 0
    for entry in entries:
        if entry.kind != "dir":
            files += 1
            total += entry.size
    return files, total


def announce(entries: list[Entry], workspace: object, action: str = "sending") -> None:
    """Logs the size of the workspace, and warns if it is unusually large."""
    files, total = summary(entries)
    logger.info(
        "%s %s file%s, %s of workspace `%s`",
        action,
        f"{files:,}",
        "" if files == 1 else "s",
        size_text(total),
        workspace,
    )
    if total <= WARN_ABOVE_BYTES:
        return
    largest = sorted((e for e in entries if e.kind == "file"), key=lambda e: -e.size)[:3]
    logger.warning(
        "the workspace `%s` holds %s, which is large for code; if the job does not need all of it,"
        " %s; the largest files: %s",
        workspace,
        size_text(total),
        LEAVE_OUT,
        ", ".join(f"`{e.path}` ({size_text(e.size)})" for e in largest),
    )


def size_text(size: float) -> str:
    """Formats a number of bytes in the best unit.

    >>> size_text(1536), size_text(12), size_text(5 << 30)
    ('1.5 KiB', '12 B', '5.0 GiB')
    """
    if size < 1024:
        return f"{size:.0f} B"
    units = ["GiB", "MiB", "KiB"]
    while (size := size / 1024) >= 1024 and len(units) > 1:
        units.pop()
    return f"{size:,.1f} {units[-1]}"


def unreadable(path: str, err: Exception) -> UnreadableWorkspace:
    """Returns the error for a file or folder of the workspace that cannot be read."""
    if isinstance(err, FileNotFoundError):
        why = "it was there a moment ago and is gone"
    else:
        why = str(getattr(err, "strerror", None) or err)
    return UnreadableWorkspace(
        f"cannot read `{path}` of the workspace: {why}; make it readable, or {LEAVE_OUT}"
    )
