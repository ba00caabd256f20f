"""Directories that hold the copy of a workspace, and what is remembered of them.

A file below TorchX's home directory says for every copy what was put into it. So a copy that
nothing was added to is told from a directory with something of the user's or of a job's in it.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torchx._lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.specs._home import TORCHX_HOME, home_dir
from torchx.specs.api import Workspace
from torchx.workspace._copy import copy
from torchx.workspace._errors import WorkspaceNotFound
from torchx.workspace._tree import Entry, announce, scan, scan_all

logger = get_logger(__name__)


class DirectoryTaken(InvalidInput, FileExistsError):
    """There is something at the place for the copy that was not made for it."""


def place(workspace: Workspace | str, path: str) -> str:
    """Copies a workspace to ``path``, or leaves an equal copy there; gives the path.

    The copy is made beside its place and moved there when it is complete.

    Raises:
        DirectoryTaken: if there is something else at the path.
        WorkspaceNotFound: if the workspace, or the parent of the path, does not exist.
    """
    target = os.path.realpath(path)
    known = _known()
    leave_out = _copies_and(target, known)
    entries = scan(workspace, leave_out=leave_out)
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        msg = f"`{path}` cannot be made: `{parent}` is no directory; make it first"
        raise WorkspaceNotFound(msg)
    source = _signature(entries)
    if os.path.lexists(target):
        copy_of = known.get(target)
        if copy_of is not None and copy_of.source == source and _holds(target, entries):
            logger.info("`%s` holds the workspace `%s` already", path, workspace)
            return path
        if not _untouched(target, known):
            raise _taken(path)
    announce(entries, workspace, "copying")
    _replace(entries, target)
    _remember(target, Copy(_signature(scan_all(target, leave_out)), source))
    return path


def is_copy(path: str) -> bool:
    """Whether a directory was made by ``place``."""
    return os.path.realpath(path) in _known()


class Copy(NamedTuple):
    """Says of a copy what it held when it was complete, and what it was copied from."""

    made: str
    source: str


def _taken(path: str) -> DirectoryTaken:
    msg = (
        f"`{path}` exists and is not an unchanged copy of the workspace; give a directory that does"
        " not exist, or remove it"
    )
    return DirectoryTaken(msg)


def _untouched(target: str, known: dict[str, Copy]) -> bool:
    """Whether nothing was added to or changed in a copy, and in other copies inside it."""
    inside = [p for p in known if p.startswith(os.path.join(target, ""))]
    try:
        return target in known and all(
            known[p].made == _signature(scan_all(p, _copies_and(p, known)))
            for p in (target, *inside)
        )
    except InvalidInput:  # there is a socket, or something else that a copy does not have
        return False


def _replace(entries: Sequence[Entry], target: str) -> None:
    import shutil

    parent, name = os.path.split(target)
    made, old = (os.path.join(parent, f".{name}.{os.urandom(4).hex()}") for _ in range(2))
    try:
        copy(entries, made)
        if os.path.lexists(target):
            os.rename(target, old)
        try:
            os.rename(made, target)
        except OSError:
            if os.path.lexists(old):
                os.rename(old, target)
            raise _taken(target) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _holds(target: str, entries: Sequence[Entry]) -> bool:
    """Whether every entry is there and has not been touched since it was copied."""
    for entry in entries:
        path = os.path.join(target, entry.path)
        try:
            there = os.lstat(path)
            if entry.kind == "link":
                if os.readlink(path) != entry.target:
                    return False
            elif entry.kind == "file" and not _same_file(entry, there):
                return False
        except OSError:
            return False
    return True


def _same_file(entry: Entry, there: os.stat_result) -> bool:
    status = entry.status
    return (
        status is not None
        and there.st_size == entry.size
        and there.st_mode == status.st_mode
        and there.st_mtime_ns == status.st_mtime_ns
    )


def _signature(entries: Sequence[Entry]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for entry in entries:
        time = entry.status.st_mtime_ns if entry.status is not None else 0
        mode = 0 if entry.kind == "link" else entry.mode
        line = (entry.path, entry.kind, mode, entry.size, entry.target, time)
        digest.update(repr(line).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _copies_and(target: str, known: dict[str, Copy]) -> Callable[[str], bool]:
    """Says of folders whether they are a copy that was made earlier, or the place of a new one."""
    return {target, *known}.__contains__


def _folder() -> str:
    return os.path.join(home_dir(), "workspaces")


def _known() -> dict[str, Copy]:
    """The copies by path."""
    known = {}
    try:
        names = os.listdir(_folder())
    except (OSError, InvalidInput):  # nothing was remembered, or there is no home directory
        return {}
    for name in names:
        record = os.path.join(_folder(), name)
        try:
            with open(record, encoding="utf-8", errors="surrogateescape") as file:
                made, source, path = file.read().split(" ", 2)
        except (OSError, ValueError):
            continue
        if os.path.isdir(path):
            known[path] = Copy(made, source)
        else:  # removed by the user
            _forget(record)
    return known


def _remember(target: str, made: Copy) -> None:
    import hashlib

    name = hashlib.sha256(os.fsencode(target)).hexdigest()[:32]
    try:
        path = os.path.join(TORCHX_HOME("workspaces"), name)
        new = f"{path}.{os.getpid()}"
        with open(new, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{made.made} {made.source} {target}")
        os.replace(new, path)
    except (OSError, InvalidInput) as err:
        logger.debug("the copy `%s` is not remembered, it cannot be reused: %s", target, err)


def _forget(record: str) -> None:
    try:
        os.unlink(record)
    except OSError:
        pass
