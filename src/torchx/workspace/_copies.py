"""Directories with a copy of a workspace, and the records of them.

A file below TorchX's home directory records the content of every copy. It distinguishes an
unchanged copy from a directory with files of a user or a job, and lets files that were copied
before be linked instead of copied again.

Hard links share their content, and a job may write into its copy. So a file is linked only if
nobody will write to it: if it is from a copy that is about to be replaced, if it is read-only, or
if the user declares that no job writes to it.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
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
"""Prefix of the temporary directory of a copy, beside its target."""
_MOST_EARLIER = 16
"""Number of earlier copies that are searched for files to link to."""
_FORGET_AFTER_S = 3600.0
_ABANDONED_AFTER_S = 86400.0
"""An unfinished copy older than a day was left by a killed process."""
_ANY_WRITE = 0o222
_MARK_BYTES = 8


class Copy(NamedTuple):
    """The record of a copy: its content when complete, and its source."""

    made: str
    source: str


def place(workspace: Workspace | str, path: str, *, link_all: bool = False) -> str:
    """Copies a workspace to ``path``, or keeps an equal copy there; returns the path.

    The copy is made beside its target and moved there when complete. If several processes need the
    same copy at once, one makes it.

    Args:
        link_all: hard-link all files that did not change since an earlier copy, also
            those that a job could write to.

    Raises:
        DirectoryTaken: if something else exists at the path.
        WorkspaceNotFound: if the workspace, or the parent of the path, does not exist.
    """
    target = os.path.realpath(path)
    with _exclusive(target):
        there = _inode(target)  # checked first: a copy is recorded before it exists
        known = _known()
        entries = scan(workspace, leave_out=_copies_and(target, known))
        parent = os.path.dirname(target)
        if not os.path.isdir(parent):
            msg = f"`{path}` cannot be made: `{parent}` is no directory; make it first"
            raise WorkspaceNotFound(msg)
        source = _source_signature(entries)
        if there is not None:
            if _equal(target, known, source, entries):
                logger.info("`%s` already holds the workspace `%s`", path, workspace)
                return path
            if not _untouched(target, known):
                raise _taken(path)
        announce(entries, workspace, "copying")
        _find_link_sources(entries, target, known, link_all)
        try:
            _replace(entries, target, source, there)
        except DirectoryTaken:  # without locks, another process may have been faster
            if not _equal(target, _known(), source, entries):
                raise
    return path


def is_copy(path: str) -> bool:
    """Returns True if a directory was created by ``place``."""
    return os.path.realpath(path) in _known()


def _exclusive(target: str) -> AbstractContextManager[bool]:
    """Keeps other processes from copying to the same target, if locks are available."""
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
    """Returns True if an unchanged copy of the same entries exists."""
    copy_of = known.get(target)
    return copy_of is not None and copy_of.source == source and _holds(target, entries)


def _taken(path: str) -> DirectoryTaken:
    msg = (
        f"`{path}` exists and is not an unchanged copy of the workspace; give a directory that does"
        " not exist, or remove it"
    )
    return DirectoryTaken(msg)


def _untouched(target: str, known: dict[str, Copy]) -> bool:
    """Returns True if nothing was added to or changed in a copy, or in other copies inside it."""
    inside = [p for p in known if p.startswith(os.path.join(target, ""))]
    try:
        return target in known and all(
            known[p].made == _signature(scan_all(p, _copies_and(p, known)))
            for p in (target, *inside)
        )
    except InvalidInput:  # a socket, or something else that a copy never has
        return False


def _find_link_sources(
    entries: Sequence[Entry], target: str, known: dict[str, Copy], link_all: bool
) -> None:
    """Sets the link source of each file that is the same in an earlier copy."""

    def may_share(entry: Entry) -> bool:
        return link_all or not entry.mode & _ANY_WRITE

    replaced = target in known  # files of a copy about to be replaced may all be linked
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
    """Returns other copies on the same file system, latest first."""
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
    """Sets link sources from an earlier copy; returns the files without one."""
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
    """Returns a key of the state of a file in the workspace."""
    import hashlib

    text = repr(entry.identity()).encode(errors="surrogateescape")
    return hashlib.blake2b(text, digest_size=_MARK_BYTES).digest()


def _marks(path: str) -> set[bytes]:
    """Returns the keys of the files in a copy; empty if unknown."""
    try:
        with open(_marks_file(path), "rb") as file:
            data = file.read()
    except OSError:
        return set()
    return {data[i : i + _MARK_BYTES] for i in range(0, len(data), _MARK_BYTES)}


def _replace(entries: Sequence[Entry], target: str, source: str, there: int | None) -> None:
    """Replaces what was found at the target by a copy; fails if something else is there now."""
    import shutil

    parent = os.path.dirname(target)
    _remove_abandoned(parent)
    made, old = (os.path.join(parent, UNFINISHED + os.urandom(8).hex()) for _ in range(2))
    try:
        copy(entries, made)
        # recorded before it exists, so that nobody takes it for a directory of the user
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
    """Removes temporary directories that killed processes left beside their targets."""
    import shutil

    try:
        names = [name for name in os.listdir(parent) if name.startswith(UNFINISHED)]
    except PermissionError:  # a write-only folder
        return
    for name in names:
        path = os.path.join(parent, name)
        try:
            # a rename changes it, too: a copy that was moved aside is old, but not abandoned
            age_s = time.time() - os.lstat(path).st_ctime
        except FileNotFoundError:  # its process finished it
            continue
        if age_s > _ABANDONED_AFTER_S:
            logger.info("removing `%s`, which a process that was killed left", path)
            shutil.rmtree(path, ignore_errors=True)


def _holds(target: str, entries: Sequence[Entry]) -> bool:
    """Returns True if every entry exists and is unchanged since it was copied."""
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
    """Returns a digest of a copy, by what is kept when its workspace is copied again."""

    def key(entry: Entry) -> tuple[object, ...]:
        changed = entry.status.st_mtime_ns if entry.status is not None else 0
        mode = 0 if entry.kind == "link" else entry.mode
        return entry.path, entry.kind, mode, entry.size, entry.target, changed

    return _digest(map(key, entries))


def _source_signature(entries: Sequence[Entry]) -> str:
    """Returns a digest of the workspace, which also changes if a file gets its old size and time
    back, as with ``cp -p``.
    """
    return _digest(entry.identity() for entry in entries)


def _digest(keys: Iterable[tuple[object, ...]]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for key in keys:
        digest.update(repr(key).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _copies_and(target: str, known: dict[str, Copy]) -> Callable[[str], bool]:
    """Returns a predicate for folders that are a copy, finished or not, or a copy's target."""
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
    """Returns the recorded copies by path."""
    known = {}
    try:
        names = os.listdir(_folder())
    except (OSError, InvalidInput):  # nothing was recorded, or there is no home directory
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
        logger.debug("the copy `%s` cannot be recorded and will not be reused: %s", target, err)


def _forget(record: str) -> None:
    """Removes the record of a copy that the user has deleted, unless it is being made."""
    try:
        if time.time() - os.stat(record).st_mtime > _FORGET_AFTER_S:
            os.unlink(record)
            os.unlink(f"{record}.files")
    except OSError:
        pass
