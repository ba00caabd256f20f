"""Lists the content of a workspace, for all builders."""

import os
import posixpath
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torchx._filesystem import filesystem
from torchx._home import home_dir
from torchx._projects import walk as _walk
from torchx._projects.entry import Entry, size_text, unreadable
from torchx._projects.ignore import Rules
from torchx._projects.patterns import literal_pattern
from torchx._projects.top_only import warn_of_top_only
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, WorkspaceNotFound

IGNORE_FILES = (_walk.TORCHX_IGNORE, _walk.DOCKER_IGNORE)
"""The first of these files in a project's root is its ignore file."""

MOST_BYTES_OF_A_FILE = 4 << 30
"""A larger file is refused unless a ``!`` pattern has its literal name."""

logger = get_logger(__name__)


class Projects(Protocol):
    """Local project directories and their targets, like ``specs.Workspace``."""

    @property
    def projects(self) -> Mapping[str, str]:
        """Local path or URL → path below the root."""


def scan(
    workspace: Projects | str,
    *,
    skip_default: bool = True,
    leave_out: Callable[[str], bool] | None = None,
) -> list[Entry]:
    """Returns the entries of a workspace, sorted by path; a folder precedes its content.

    Ignore files are applied, per project. Where two projects have the same path, the later one
    wins. Links are never followed: one that stays within its project is kept as a relative link,
    one that leaves it is kept as a link to the absolute path it means here.

    Args:
        workspace: projects, or the path or URL of a single one.
        skip_default: leave out ``.git``, ``__pycache__``, virtual environments and TorchX's own
            files.
        leave_out: returns True for the path of a local folder that is not part of the workspace.

    Raises:
        WorkspaceNotFound: if a project does not exist.
        UnreadableWorkspace: if a folder cannot be read.
        InvalidInput: for a malformed pattern, a socket or device, a file of more than 4 GiB, or
            two projects of which one has a file where the other has a folder.
    """
    projects = {workspace: ""} if isinstance(workspace, str) else workspace.projects
    if skip_default:
        leave_out = _but_own_files(leave_out)
    merged: dict[str, Entry] = {}
    leaving: list[Entry] = []
    for source, target in projects.items():
        place = _target(source, target)
        found, out = _project(source, place, merged, skip_default, leave_out)
        leaving += out
        if merged or place:
            _merge(merged, found, place)
        else:
            merged = {entry.path: entry for entry in found}
    if leaving:
        _warn_of_links(leaving)
    return sorted(merged.values(), key=_path_of)


def _but_own_files(leave_out: Callable[[str], bool] | None) -> Callable[[str], bool]:
    """Extends ``leave_out`` by TorchX's home directory, whatever its name."""
    try:
        home = os.path.realpath(home_dir())
    except InvalidInput:  # there is none
        home = ""
    return lambda path: path == home or (leave_out is not None and leave_out(path))


def scan_all(root: str, leave_out: Callable[[str], bool]) -> list[Entry]:
    """Returns everything below a local directory, sorted by path; ignore files are not applied.

    Raises:
        UnreadableWorkspace: if a folder cannot be read.
        InvalidInput: for a socket or device.
    """
    entries, _ = _local_project(root, "", Rules((), skip_default=False), leave_out, sys.maxsize)
    return sorted(entries, key=_path_of)


def is_local(location: str) -> bool:
    """Returns True for a local path or a ``file://`` URL."""
    return "://" not in location or location.startswith("file://")


def local_path(location: str) -> str:
    """Returns the path of a local workspace, with ``~`` expanded.

    >>> local_path("file://.")
    '.'
    """
    return os.path.expanduser(location.removeprefix("file://") or ".")


def is_single_file(location: str, entries: Sequence[Entry]) -> bool:
    """Returns True if a scanned project is a file and not a folder."""
    if is_local(location):
        return os.path.isfile(local_path(location))
    fs, path = filesystem(location)
    return bool(entries) and not fs.isdir(path)


def not_found(location: str) -> WorkspaceNotFound:
    """Returns the error for a workspace that does not exist."""
    at = f" (`{os.path.abspath(local_path(location))}`)" if is_local(location) else ""
    msg = f"the workspace `{location}`{at} does not exist; give a directory or file that does"
    return WorkspaceNotFound(msg)


def _path_of(entry: Entry) -> str:
    return entry.path


def _target(source: str, target: str | None) -> str:
    """Returns a project's target, relative to the root; empty for the root itself."""
    place = posixpath.normpath(target or ".")
    if place == ".":
        return ""
    if place.startswith(("/", "../")) or place == "..":
        msg = (
            f"the project `{source}` of the workspace goes to `{target}`, which is not below the"
            " job's root; give a relative path without `..`"
        )
        raise InvalidInput(msg)
    return place


def _project(
    source: str,
    place: str,
    before: dict[str, Entry],
    skip_default: bool,
    leave_out: "Callable[[str], bool] | None",
) -> tuple[list[Entry], list[Entry]]:
    """Returns the entries of one project at their targets, and the links that lead out of it."""
    if not is_local(source):
        return _remote_project(source, place, before, skip_default), []
    path = local_path(source)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise not_found(source) from None
    except OSError as err:
        raise unreadable(path, err) from err
    path = os.path.realpath(path)
    if not stat.S_ISDIR(status.st_mode):
        if not stat.S_ISREG(status.st_mode):
            raise _unsendable(path, status.st_mode, "give a directory or a file")
        where = _place_of_file(os.path.basename(local_path(source)), place, before)
        mode = stat.S_IMODE(status.st_mode)
        return [Entry(where, "file", mode, status.st_size, None, path, None, status)], []
    rules = _walk.local_rules(path, IGNORE_FILES, skip_default=skip_default)
    found, leaving = _local_project(path, place, rules, leave_out)
    warn_of_top_only(rules, path, found)
    return found, leaving


def _place_of_file(name: str, place: str, before: dict[str, Entry]) -> str:
    """Returns the target of a file, as ``cp`` does: in an existing folder, else the given name."""
    if not place:
        return name
    into = before.get(place)
    return f"{place}/{name}" if into is not None and into.kind == "dir" else place


def _local_project(
    root: str,
    place: str,
    rules: "Rules",
    leave_out: "Callable[[str], bool] | None",
    largest: int = MOST_BYTES_OF_A_FILE,
) -> tuple[list[Entry], list[Entry]]:
    prefix = f"{place}/" if place else ""
    entries: list[Entry] = []
    leaving: list[Entry] = []
    implied: dict[str, Entry] = {}
    add = entries.append
    for folder in _walk.walk_local(root, rules, leave_out):
        below = prefix + folder.below
        if folder.below:
            mode = stat.S_IMODE(_lstat(folder.path).st_mode)
            entry = Entry(below[:-1], "dir", mode, source=folder.path)
            if folder.kept:
                add(entry)
            else:
                implied[entry.path] = entry
        for found in folder.files:
            status = _entry_lstat(found)
            path = below + found.name
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFREG:
                if status.st_size > largest:
                    _check_size(folder.below + found.name, path, status.st_size, rules)
                add(
                    Entry(
                        path,
                        "file",
                        status.st_mode & 0o7777,
                        status.st_size,
                        None,
                        found.path,
                        None,
                        status,
                    )
                )
            elif kind == stat.S_IFLNK:
                link, leaves = _link(path, found.path, root)
                add(link)
                if leaves:
                    leaving.append(link)
            else:
                line = literal_pattern(folder.below + found.name)
                advice = f"remove it, or leave it out with the line `{line}` in `{rules.file}`"
                raise _unsendable(found.path, status.st_mode, advice)
    if implied:
        _add_folders_in_use(entries, implied)
    return entries, leaving


def _entry_lstat(found: "os.DirEntry[str]") -> os.stat_result:
    try:
        return found.stat(follow_symlinks=False)
    except OSError as err:
        raise unreadable(found.path, err) from err


def _lstat(path: str) -> os.stat_result:
    try:
        return os.lstat(path)
    except OSError as err:
        raise unreadable(path, err) from err


def _check_size(below: str, path: str, size: int, rules: "Rules") -> None:
    """Refuses a file that is too large to be sent by default.

    Args:
        below: its path in its project.
        path: its path in the workspace.
    """
    if size <= MOST_BYTES_OF_A_FILE or rules.asks_for(below):
        return
    line = literal_pattern(below)
    msg = (
        f"`{path}` of the workspace has {size_text(size)}, and files above"
        f" {size_text(MOST_BYTES_OF_A_FILE)} are not sent with code: add the line `{line}` to"
        f" `{rules.file}` to leave it out, or `!{line}` to send it all the same"
    )
    raise InvalidInput(msg)


def _link(path: str, source: str, root: str) -> tuple[Entry, bool]:
    """Returns the entry of a link, and whether it leads out of its project.

    One that leads out gets the absolute path of its target here: from the copy, a relative one
    would point to an arbitrary file.
    """
    try:
        target = os.readlink(source)
    except OSError as err:
        raise unreadable(source, err) from err
    folder = os.path.dirname(source)
    meant = os.path.normpath(os.path.join(folder, target))
    leaves = meant != root and not meant.startswith(os.path.join(root, ""))
    if leaves:
        target = meant
    elif os.path.isabs(target):
        target = os.path.relpath(meant, folder)
    return Entry(path, "link", 0o777, target=target, source=source), leaves


def _unsendable(path: str, mode: int, advice: str) -> InvalidInput:
    kinds = {
        stat.S_IFSOCK: "a socket",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    msg = (
        f"`{path}` in the workspace is {kinds.get(stat.S_IFMT(mode), 'no file')}, which cannot be"
        f" sent; {advice}"
    )
    return InvalidInput(msg)


def _warn_of_links(links: list[Entry]) -> None:
    named = ", ".join(f"`{e.path}` -> `{e.target}`" for e in links[:5])
    more = f" and {len(links) - 5} more" if len(links) > 5 else ""
    logger.warning(
        "links lead out of the workspace: %s%s; they are sent as links and work only where the same"
        " path exists; to send what they lead to, make it a project of the workspace",
        named,
        more,
    )


def _add_folders_in_use(entries: list[Entry], implied: dict[str, Entry]) -> None:
    """Adds ignored folders that hold something that is included again."""
    needed: dict[str, Entry] = {}
    for entry in entries:
        above = posixpath.dirname(entry.path)
        while above in implied and above not in needed:
            needed[above] = implied[above]
            above = posixpath.dirname(above)
    entries.extend(needed.values())


def _merge(merged: dict[str, Entry], found: list[Entry], place: str) -> None:
    is_file = len(found) == 1 and found[0].path == place
    above = posixpath.dirname(place) if is_file else place
    while above:  # the parent folders of the project's target
        _put(merged, Entry(above, "dir", 0o755))
        above = posixpath.dirname(above)
    for entry in found:
        _put(merged, entry)


def _put(merged: dict[str, Entry], entry: Entry) -> None:
    there = merged.get(entry.path)
    if there is not None and (there.kind == "dir") != (entry.kind == "dir"):
        msg = (
            f"two projects of the workspace disagree about `{entry.path}`: it is a"
            f" {there.kind} in one and a {entry.kind} in the other; give one of them another target"
        )
        raise InvalidInput(msg)
    if there is None or entry.source or entry.content is not None:
        merged[entry.path] = entry


def _remote_project(
    url: str, place: str, before: dict[str, Entry], skip_default: bool
) -> list[Entry]:
    fs, root = filesystem(url)
    try:
        info = fs.info(root)
    except FileNotFoundError:
        raise not_found(url) from None
    if info.get("type") != "directory":
        where = _place_of_file(posixpath.basename(root.rstrip("/")), place, before)
        return [_remote_file(fs, where, info)]
    rules = _walk.remote_rules(fs, root, IGNORE_FILES, skip_default=skip_default)
    prefix = f"{place}/" if place else ""
    entries: list[Entry] = []
    implied: dict[str, Entry] = {}
    for folder in _walk.walk_remote(fs, root, rules):
        below = prefix + folder.below
        if folder.below:
            entry = Entry(below[:-1], "dir", 0o755, source=fs.unstrip_protocol(folder.path))
            if folder.kept:
                entries.append(entry)
            else:
                implied[entry.path] = entry
        for name, details in folder.files.items():
            entry = _remote_file(fs, below + name, details)
            _check_size(folder.below + name, entry.path, entry.size, rules)
            entries.append(entry)
    if implied:
        _add_folders_in_use(entries, implied)
    return entries


def _remote_file(fs: Any, path: str, info: dict[str, Any]) -> Entry:
    source = fs.unstrip_protocol(info["name"])
    return Entry(path, "file", _walk.permission_bits(info), int(info["size"] or 0), source=source)
