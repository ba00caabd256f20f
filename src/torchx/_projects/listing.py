"""The listing of ``walk_workspace``: folders and files as fsspec describes them."""

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from torchx._projects import walk as _walk
from torchx._projects.entry import unreadable

Folder = tuple[str, list[str], dict[str, Mapping[str, Any]]]


def walk(fs: Any, path: str, ignore_name: str) -> Iterator[Folder]:
    """Folders of a workspace; ``torchx.workspace.walk_workspace`` describes it."""
    names: tuple[str, ...] = (ignore_name,)
    if ignore_name == _walk.TORCHX_IGNORE:
        names = (ignore_name, _walk.DOCKER_IGNORE)
    root = fs._strip_protocol(path)  # the documented way from a URL to a path; it has no other name
    if _is_local(fs):
        return _local(root, names)
    return _remote(fs, root, names)


def _is_local(fs: Any) -> bool:
    protocol = getattr(fs, "protocol", ())
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def _local(root: str, names: tuple[str, ...]) -> Iterator[Folder]:
    try:
        status = os.stat(root)
    except FileNotFoundError:
        return iter(())
    if not stat.S_ISDIR(status.st_mode):
        return iter([(root, [], {"": _details(root, status)})])
    rules = _walk.local_rules(root, names)
    return (
        (folder.path, folder.folders, {f.name: LocalFile(f) for f in folder.files})
        for folder in _walk.walk_local(root, rules)
    )


def _remote(fs: Any, root: str, names: tuple[str, ...]) -> Iterator[Folder]:
    try:
        info = fs.info(root)
    except FileNotFoundError:
        return iter(())
    if info.get("type") != "directory":
        return iter([(root, [], {"": info})])
    rules = _walk.remote_rules(fs, root, names)
    return (
        (folder.path, folder.folders, dict(folder.files))
        for folder in _walk.walk_remote(fs, root, rules)
    )


class LocalFile(Mapping[str, Any]):
    """A local file as fsspec describes it; read when more than its path is looked at."""

    __slots__ = ("_details", "_entry")

    def __init__(self, entry: "os.DirEntry[str]") -> None:
        self._entry = entry
        self._details: dict[str, Any] | None = None

    def __getitem__(self, key: str) -> Any:
        return self._entry.path if key == "name" else self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> dict[str, Any]:
        if self._details is None:
            try:
                status = self._entry.stat(follow_symlinks=False)
            except OSError as err:
                raise unreadable(self._entry.path, err) from err
            self._details = _details(self._entry.path, status)
        return self._details


def _details(path: str, status: os.stat_result) -> dict[str, Any]:
    is_link = stat.S_ISLNK(status.st_mode)
    kind = "link" if is_link else "file" if stat.S_ISREG(status.st_mode) else "other"
    details = {
        "name": path,
        "size": status.st_size,
        "type": kind,
        "created": status.st_ctime,
        "islink": is_link,
        "mode": status.st_mode,
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime": status.st_mtime,
        "ino": status.st_ino,
        "nlink": status.st_nlink,
    }
    if is_link:
        details["destination"] = os.readlink(path)
    return details
