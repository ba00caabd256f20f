"""Workspaces as copied directories, for jobs that run from a shared file system."""

import os
from collections.abc import Mapping, Sequence

from torchx._projects.copy import copy, copy_to_url
from torchx._projects.entry import Entry, announce
from torchx._projects.tree import scan
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.specs.api import CfgVal, Role, Workspace
from torchx.workspace import _copies
from torchx.workspace.api import WorkspaceMixin

__all__ = ["DirWorkspaceMixin", "TmpDirWorkspaceMixin"]

logger = get_logger(__name__)


class DirWorkspaceMixin(WorkspaceMixin[None]):
    """Copies the workspace into the directory that the option ``job_dir`` names.

    That becomes the role's image. Without ``job_dir`` nothing is done. With ``link_unchanged``,
    files that did not change since an earlier copy are hard-linked to it. The scheduler declares
    both options.

    The directory must not exist, its parent must. An unchanged copy may be given again: it is
    reused, or replaced if the workspace has changed since. Further roles with another workspace get
    a folder of their name in it.
    """

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Copies the workspace of one role, unless an earlier role had the same.

        Raises:
            InvalidInput: if something else exists at ``job_dir``, or the workspace is missing.
        """
        if not role.workspace or cfg.get("job_dir") is None:
            return
        if _builds_itself(self, DirWorkspaceMixin):
            super().caching_build_workspace_and_update_role(role, cfg, build_cache)
            return
        job_dir = _job_dir(cfg)
        key = (DirWorkspaceMixin, job_dir, role.workspace)
        built = build_cache.get(key)
        if built is None:
            taken = build_cache.setdefault((DirWorkspaceMixin, job_dir), [])
            assert isinstance(taken, list)
            path = _folder_of(role.name, job_dir, taken) if taken else job_dir
            built = build_cache[key] = _place(role.workspace, path, cfg)
            taken.append(built)
        role.image = str(built)

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Copies one directory for one role."""
        if cfg.get("job_dir") is not None:
            role.image = _place(workspace, _job_dir(cfg), cfg)


class TmpDirWorkspaceMixin(WorkspaceMixin[None]):
    """Copies the workspace into a new temporary directory, which becomes the role's image.

    The directory exists until the scheduler is closed, or the process ends: for backends that read
    it when a job is submitted.
    """

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Copies the workspace of one role, unless an earlier role had the same."""
        if not role.workspace:
            return
        if _builds_itself(self, TmpDirWorkspaceMixin):
            super().caching_build_workspace_and_update_role(role, cfg, build_cache)
            return
        key = (TmpDirWorkspaceMixin, role.workspace)
        if key not in build_cache:
            build_cache[key] = self._copy(role.workspace)
        role.image = str(build_cache[key])

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Copies one directory for one role."""
        role.image = self._copy(workspace)

    def close(self) -> None:
        """Removes the directories, and closes the scheduler."""
        import shutil

        for path in self.__dict__.pop("_temporary", ()):
            shutil.rmtree(path, ignore_errors=True)
        close = getattr(super(), "close", None)
        if close is not None:
            close()

    def _copy(self, workspace: Workspace | str) -> str:
        import tempfile

        entries = scan(workspace)
        path = tempfile.mkdtemp(prefix="torchx_workspace")
        self._temporary_paths().append(path)
        announce(entries, workspace, "copying")
        copy(entries, path)
        return path

    def _temporary_paths(self) -> list[str]:
        paths: list[str] | None = self.__dict__.get("_temporary")
        if paths is None:
            import atexit

            paths = self.__dict__["_temporary"] = []
            atexit.register(_remove_all, paths)
        return paths


def _remove_all(paths: list[str]) -> None:
    import shutil

    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


class _BadJobDir(InvalidInput, AssertionError):
    """The option is of the wrong type; older callers catch the second base class."""


def _job_dir(cfg: Mapping[str, CfgVal]) -> str:
    job_dir = cfg["job_dir"]
    if not isinstance(job_dir, str) or not job_dir:
        msg = f"`job_dir` is `{job_dir!r}`; give the path of a directory that does not exist yet"
        raise _BadJobDir(msg)
    return os.path.expanduser(job_dir)


def _place(workspace: Workspace | str, path: str, cfg: Mapping[str, CfgVal]) -> str:
    return _copies.place(workspace, path, link_all=bool(cfg.get("link_unchanged")))


def _folder_of(role: str, job_dir: str, taken: Sequence[str]) -> str:
    """Returns a folder for another role's copy, beside the first role's files."""
    name = role.replace("/", "_").lstrip(".") or "role"
    path = os.path.join(job_dir, name)
    number = 2
    while path in taken or (os.path.lexists(path) and not _copies.is_copy(path)):
        path = os.path.join(job_dir, f"{name}-{number}")
        number += 1
    return path


def _builds_itself(builder: object, mixin: type) -> bool:
    """Returns True if a subclass overrides the build of a single directory."""
    name = "build_workspace_and_update_role"
    return getattr(type(builder), name) is not getattr(mixin, name)


def _copy_to_dir(workspace: str, target: str) -> None:
    """Copies the content of a workspace to a directory or an fsspec URL."""
    entries: Sequence[Entry] = scan(workspace)
    copy_to_url(entries, target)
