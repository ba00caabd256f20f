"""Walks a workspace, one folder at a time, in an order that does not change."""

import os
import posixpath
import stat
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from torchx._projects.entry import unreadable
from torchx._projects.ignore import Rules, Scope
from torchx._projects.patterns import parse
from torchx.errors import InvalidInput

TORCHX_IGNORE = ".torchxignore"
DOCKER_IGNORE = ".dockerignore"

_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""Names found in the root of every environment of venv, or of conda."""

_by_name = attrgetter("name")


class LocalFolder(NamedTuple):
    """A local folder that is in the workspace, or holds something that is."""

    path: str
    below: str
    """The path below the root with ``/`` at its end; empty for the root."""
    kept: bool
    """False if only something below it is included again."""
    folders: list[str]
    files: list[os.DirEntry[str]]
    """Everything but folders; includes links and special files."""


class RemoteFolder(NamedTuple):
    """A folder on an fsspec file system that is in the workspace, or holds something that is."""

    path: str
    below: str
    kept: bool
    folders: list[str]
    files: dict[str, dict[str, Any]]
    """Names, each with the file system's information about it."""


def local_rules(root: str, names: tuple[str, ...], *, skip_default: bool = True) -> Rules:
    """Returns the rules of the first ignore file found in a local root.

    Raises:
        InvalidInput: if a pattern is malformed.
    """
    for name in names:
        path = os.path.join(root, name)
        try:
            with open(path, encoding="utf-8") as file:
                patterns = parse(file.read(), f"`{path}`")
                return Rules(patterns, skip_default=skip_default, file=path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except UnicodeDecodeError:
            msg = f"the ignore file `{path}` is not UTF-8 text"
            raise InvalidInput(msg) from None
        except OSError as err:
            raise unreadable(path, err) from err
    return Rules((), skip_default=skip_default, file=os.path.join(root, names[0]))


def remote_rules(fs: Any, root: str, names: tuple[str, ...], *, skip_default: bool = True) -> Rules:
    """Returns the rules of the first ignore file found in a root on an fsspec file system."""
    for name in names:
        path = posixpath.join(root, name)
        try:
            content = fs.cat_file(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            patterns = parse(content.decode(), f"`{path}`")
            return Rules(patterns, skip_default=skip_default, file=path)
        except UnicodeDecodeError:
            msg = f"the ignore file `{path}` is not UTF-8 text"
            raise InvalidInput(msg) from None
    return Rules((), skip_default=skip_default, file=posixpath.join(root, names[0]))


def walk_local(
    root: str, rules: Rules, leave_out: Callable[[str], bool] | None = None
) -> Iterator[LocalFolder]:
    """Yields the folders of a local tree; links are not followed.

    Args:
        root: an existing folder.
        rules: of the workspace's ignore file.
        leave_out: returns True for the path of a folder that is not part of the workspace.

    Raises:
        UnreadableWorkspace: if a folder cannot be read.
    """
    stack: list[_Waiting] = [(root, "", True, rules.root(), _sorted_listing(root))]
    skipped, venvs = rules.skipped, rules.skips_venvs
    while stack:
        path, below, kept, scope, found = stack.pop()
        files: list[os.DirEntry[str]] = []
        folders: list[str] = []
        deeper: list[_Waiting] = []
        all_kept, keeps = scope.everything_kept, scope.keeps
        for entry in found:
            name = entry.name
            if name in skipped:
                continue
            if entry.is_dir(follow_symlinks=False):
                sub_kept, sub_scope = scope.enter(name)
                if sub_scope is None or (leave_out is not None and leave_out(entry.path)):
                    continue
                inside = _sorted_listing(entry.path)
                if venvs and _is_environment(inside):
                    sub_kept, sub_scope = rules.enter_environment(below + name)
                    if sub_scope is None:
                        continue
                folders.append(name)
                deeper.append((entry.path, f"{below}{name}/", sub_kept, sub_scope, inside))
            elif all_kept or keeps(name) or (not below and name == "Dockerfile.torchx"):
                files.append(entry)
        stack.extend(reversed(deeper))
        yield LocalFolder(path, below, kept, folders, files)


_Waiting = tuple[str, str, bool, Scope, "list[os.DirEntry[str]]"]
"""A folder still to be walked: path, path below the root, kept, scope, and its content."""


def _sorted_listing(path: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(path) as listing:
            return sorted(listing, key=_by_name)
    except OSError as err:
        raise unreadable(path, err) from err


def _is_environment(found: "list[os.DirEntry[str]]") -> bool:
    """Returns True if a folder with this sorted content is an environment of venv or conda."""
    for name in _ENVIRONMENT_MARKS:
        at = bisect_left(found, name, key=_by_name)
        if at < len(found) and found[at].name == name:
            return True
    return False


def walk_remote(fs: Any, root: str, rules: Rules) -> Iterator[RemoteFolder]:
    """Yields the folders of a tree on an fsspec file system; it is listed with one call."""
    tree = _listing(fs, root)
    stack: list[tuple[str, bool, Scope]] = [("", True, rules.root())]
    while stack:
        below, kept, scope = stack.pop()
        files: dict[str, dict[str, Any]] = {}
        folders: list[str] = []
        deeper: list[tuple[str, bool, Scope]] = []
        for name, info in sorted(tree.get(below, {}).items()):
            if name in rules.skipped:
                continue
            if info.get("type") == "directory":
                sub_kept, sub_scope = scope.enter(name)
                inside = f"{below}{name}/"
                if sub_scope is not None and rules.skips_venvs and _has_marks(tree.get(inside)):
                    sub_kept, sub_scope = rules.enter_environment(below + name)
                if sub_scope is None:
                    continue
                folders.append(name)
                deeper.append((inside, sub_kept, sub_scope))
            elif scope.keeps(name) or (not below and name == "Dockerfile.torchx"):
                files[name] = info
        stack.extend(reversed(deeper))
        path = posixpath.join(root, below.rstrip("/")) if below else root
        yield RemoteFolder(path, below, kept, folders, files)


def _has_marks(names: Container[str] | None) -> bool:
    return names is not None and any(mark in names for mark in _ENVIRONMENT_MARKS)


def _listing(fs: Any, root: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the content of each folder, by its path below the root with a trailing ``/``."""
    tree: dict[str, dict[str, dict[str, Any]]] = {"": {}}
    prefix = root.rstrip("/") + "/"
    for path, info in fs.find(root, withdirs=True, detail=True).items():
        if not path.startswith(prefix) or path.rstrip("/") == root.rstrip("/"):
            continue
        below = path[len(prefix) :].rstrip("/")
        folder, _, name = below.rpartition("/")
        tree.setdefault(folder + "/" if folder else "", {})[name] = info
        while folder:  # object stores have no entries for folders
            above, _, name = folder.rpartition("/")
            tree.setdefault(above + "/" if above else "", {}).setdefault(
                name, {"type": "directory", "name": prefix + folder, "size": 0}
            )
            folder = above
    return tree


def permission_bits(info: dict[str, Any]) -> int:
    """Returns the mode that a file system reports, or the default one."""
    mode = info.get("mode")
    if isinstance(mode, int):
        return stat.S_IMODE(mode)
    return 0o755 if info.get("type") == "directory" else 0o644
