"""Directories that hold the copy of a workspace, and what is remembered of them.

A file below TorchX's home directory records for every copy what was put into it. By that a copy to
which nothing was added differs from a directory with something of the user's or of a job's in it,
and a file that was copied before can be linked to rather than copied again.

Two names of one file share what is written into it, and a job may write into its copy. So a file is
only linked where nobody will: out of a copy that is about to be replaced, and where the file itself
is one that nobody may write to; or where the user says that no job does.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from torchx._files import exclusive_lock, replace_file
from torchx._home import TORCHX_HOME, home_dir
from torchx._projects.copy import copy
from torchx._projects.entry import Entry, announce
from torchx._projects.tree import scan, scan_all
from torchx._startup.lazy_logger import get_logger
from torchx.errors import DirectoryTaken, InvalidInput, WorkspaceNotFound
from torchx.specs.api import Workspace

logger = get_logger(__name__)

UNFINISHED = ".torchx-copy."
"""Begins the name of a directory beside the place of a copy while that is made."""
_MOST_EARLIER = 16
"""Number of earlier copies that are searched for files to link to."""
_FORGET_AFTER_S = 3600.0
_ABANDONED_AFTER_S = 86400.0
"""No copy takes a day: what is unfinished then was left by a process that was killed."""
_ANY_WRITE = 0o222
_MARK_BYTES = 8


class Copy(NamedTuple):
    """Says of a copy what it held when it was complete, and what it was copied from."""

    made: str
    source: str


def place(workspace: Workspace | str, path: str, *, link_all: bool = False) -> str:
    """Copies a workspace to ``path``, or leaves an equal copy there; gives the path.

    The copy is made beside its place and moved there when it is complete. Of several processes
    that want the same at once, one makes it.

    Args:
        link_all: hard-link all files that did not change since an earlier copy, also
            those that a job could write to.

    Raises:
        DirectoryTaken: if there is something else at the path.
        WorkspaceNotFound: if the workspace, or the parent of the path, does not exist.
    """
    target = os.path.realpath(path)
    with _exclusive(target):
        there = _inode(target)  # looked for first: a copy is remembered before it is there
        known = _known()
        entries = scan(workspace, leave_out=_copies_and(target, known))
        parent = os.path.dirname(target)
        if not os.path.isdir(parent):
            msg = f"`{path}` cannot be made: `{parent}` is no directory; make it first"
            raise WorkspaceNotFound(msg)
        source = _signature(entries)
        if there is not None:
            if _equal(target, known, source, entries):
                logger.info("`%s` holds the workspace `%s` already", path, workspace)
                return path
            if not _untouched(target, known):
                raise _taken(path)
        announce(entries, workspace, "copying")
        _find_link_sources(entries, target, known, link_all)
        try:
            _replace(entries, target, source, there)
        except DirectoryTaken:  # where there are no locks, another one may have been faster
            if not _equal(target, _known(), source, entries):
                raise
    return path


def is_copy(path: str) -> bool:
    """True if a directory was made by ``place``."""
    return os.path.realpath(path) in _known()


def _exclusive(target: str) -> AbstractContextManager[bool]:
    """Keeps other processes from making a copy at the same place, where locks work."""
    name = f".lock-{_record_name(target)[:2]}"
    try:
        lock = os.path.join(TORCHX_HOME("workspaces"), name)
    except (OSError, InvalidInput) as err:
        logger.debug("no lock for `%s`: %s", target, err)
        return nullcontext(False)
    return exclusive_lock(
        lock, lambda: logger.info("waiting for another process that copies to `%s`", target)
    )


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return None


def _equal(target: str, known: dict[str, Copy], source: str, entries: Sequence[Entry]) -> bool:
    """True if there is a copy of the same, in which nothing was changed."""
    copy_of = known.get(target)
    return copy_of is not None and copy_of.source == source and _holds(target, entries)


def _taken(path: str) -> DirectoryTaken:
    msg = (
        f"`{path}` exists and is not an unchanged copy of the workspace; give a directory that does"
        " not exist, or remove it"
    )
    return DirectoryTaken(msg)


def _untouched(target: str, known: dict[str, Copy]) -> bool:
    """True if nothing was added to or changed in a copy, and in other copies inside it."""
    inside = [p for p in known if p.startswith(os.path.join(target, ""))]
    try:
        return target in known and all(
            known[p].made == _signature(scan_all(p, _copies_and(p, known)))
            for p in (target, *inside)
        )
    except InvalidInput:  # there is a socket, or something else that a copy does not have
        return False


def _find_link_sources(
    entries: Sequence[Entry], target: str, known: dict[str, Copy], link_all: bool
) -> None:
    """Notes for files which file of an earlier copy is the same and may be linked to."""

    def may_share(entry: Entry) -> bool:
        return link_all or not entry.mode & _ANY_WRITE

    replaced = target in known  # with a copy that is about to go, every file may be shared
    left = [
        (entry, _mark(entry))
        for entry in entries
        if entry.kind == "file" and entry.status is not None and (replaced or may_share(entry))
    ]
    if replaced:
        left = [found for found in _without_link_source(left, target) if may_share(found[0])]
    for path in _earlier(target, known) if left else ():
        left = _without_link_source(left, path)
        if not left:
            return


def _earlier(target: str, known: dict[str, Copy]) -> list[str]:
    """Other copies on the file system of the new one, the latest first."""
    device = os.stat(os.path.dirname(target)).st_dev
    found = []
    for path in known:
        try:
            if path != target and os.stat(path).st_dev == device:
                found.append((os.stat(_marks_file(path)).st_mtime_ns, path))
        except OSError:  # it was removed meanwhile
            continue
    return [path for _, path in sorted(found, reverse=True)[:_MOST_EARLIER]]


def _without_link_source(
    entries: list[tuple[Entry, bytes]], earlier: str
) -> list[tuple[Entry, bytes]]:
    """Notes the link sources that files have in an earlier copy; gives the files without one."""
    marks = _marks(earlier)
    if not marks:
        return entries
    left = []
    for entry, mark in entries:
        link_source = os.path.join(earlier, entry.path)
        try:
            if mark in marks and _same_file(entry, os.lstat(link_source)):
                entry.link_source = link_source
                continue
        except OSError:  # it was removed from the copy
            pass
        left.append((entry, mark))
    return left


def _mark(entry: Entry) -> bytes:
    """Stands for the state of a file in the workspace."""
    import hashlib

    text = repr(entry.identity()).encode(errors="surrogateescape")
    return hashlib.blake2b(text, digest_size=_MARK_BYTES).digest()


def _marks(path: str) -> set[bytes]:
    """Of the files that a copy was made of; none if they are not known."""
    try:
        with open(_marks_file(path), "rb") as file:
            data = file.read()
    except OSError:
        return set()
    return {data[i : i + _MARK_BYTES] for i in range(0, len(data), _MARK_BYTES)}


def _replace(entries: Sequence[Entry], target: str, source: str, there: int | None) -> None:
    """Makes a copy in the place of what was found there, and of nothing that came since."""
    import shutil

    parent = os.path.dirname(target)
    _remove_abandoned(parent)
    made, old = (os.path.join(parent, UNFINISHED + os.urandom(8).hex()) for _ in range(2))
    try:
        copy(entries, made)
        # remembered before it is there, so that nobody takes it for a directory of the user
        signature = _signature(scan_all(made, _copies_and(made, {})))
        _remember(target, Copy(signature, source), entries)
        if there is not None and _inode(target) == there:
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


def _remove_abandoned(parent: str) -> None:
    """Removes what killed processes left beside the places of their copies."""
    import shutil

    try:
        names = [name for name in os.listdir(parent) if name.startswith(UNFINISHED)]
    except PermissionError:  # a folder to put things into only
        return
    for name in names:
        path = os.path.join(parent, name)
        try:
            # changed by a rename, too: a copy that is put aside is old, but not left
            age_s = time.time() - os.lstat(path).st_ctime
        except FileNotFoundError:  # its process finished it
            continue
        if age_s > _ABANDONED_AFTER_S:
            logger.info("removing `%s`, which a process that was killed left", path)
            shutil.rmtree(path, ignore_errors=True)


def _holds(target: str, entries: Sequence[Entry]) -> bool:
    """True if every entry is there and has not been touched since it was copied."""
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
        changed = entry.status.st_mtime_ns if entry.status is not None else 0
        mode = 0 if entry.kind == "link" else entry.mode
        line = (entry.path, entry.kind, mode, entry.size, entry.target, changed)
        digest.update(repr(line).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _copies_and(target: str, known: dict[str, Copy]) -> Callable[[str], bool]:
    """Says of folders whether they are a copy, finished or not, or the place of a new one."""
    copies = {target, *known}
    return lambda path: path in copies or os.path.basename(path).startswith(UNFINISHED)


def _folder() -> str:
    return os.path.join(home_dir(), "workspaces")


def _record_name(target: str) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(target)).hexdigest()[:32]


def _marks_file(target: str) -> str:
    return os.path.join(_folder(), f"{_record_name(target)}.files")


def _known() -> dict[str, Copy]:
    """The copies by path."""
    known = {}
    try:
        names = os.listdir(_folder())
    except (OSError, InvalidInput):  # nothing was remembered, or there is no home directory
        return {}
    for name in names:
        if "." in name:
            continue
        record = os.path.join(_folder(), name)
        try:
            with open(record, encoding="utf-8", errors="surrogateescape") as file:
                made, source, path = file.read().split(" ", 2)
        except (OSError, ValueError):
            continue
        if os.path.isdir(path):
            known[path] = Copy(made, source)
        else:
            _forget(record)
    return known


def _remember(target: str, made: Copy, entries: Sequence[Entry]) -> None:
    marks = b"".join(_mark(e) for e in entries if e.kind == "file" and e.status is not None)
    text = f"{made.made} {made.source} {target}".encode(errors="surrogateescape")
    try:
        record = os.path.join(TORCHX_HOME("workspaces"), _record_name(target))
        for path, data in ((_marks_file(target), marks), (record, text)):
            replace_file(path, data)
    except (OSError, InvalidInput) as err:
        logger.debug("the copy `%s` is not remembered, it cannot be reused: %s", target, err)


def _forget(record: str) -> None:
    """Removes the record of a copy that the user has removed, unless it is about to be made."""
    try:
        if time.time() - os.stat(record).st_mtime > _FORGET_AFTER_S:
            os.unlink(record)
            os.unlink(f"{record}.files")
    except OSError:
        pass
