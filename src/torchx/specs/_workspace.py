"""Workspaces: local code that is sent along with a job."""

import os
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path


@light_dataclass
class Workspace:
    """Local project directories and their targets below the job's root.

    >>> str(Workspace({"~/proj": "", "~/lib": "lib"}))
    '~/proj;~/lib:lib'

    Args:
        projects: local path or fsspec URL → remote sub-directory; ``""`` is the root itself.
    """

    projects: dict[str, str]

    def __bool__(self) -> bool:
        return bool(self.projects)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workspace) and self.projects == other.projects

    def __hash__(self) -> int:
        return hash(frozenset(self.projects.items()))

    def is_unmapped_single_project(self) -> bool:
        """Returns True if there is a single project whose target is the root."""
        return len(self.projects) == 1 and not next(iter(self.projects.values()))

    def merge_into(self, outdir: "str | Path") -> None:
        """Copies every project into its place below ``outdir``.

        Modes, times and links are kept, ignore files are applied, and ``~`` is expanded; see
        ``torchx.workspace``. A single file is copied into the folder that its target names, if that
        exists, else to the target itself.

        Raises:
            FileNotFoundError: if a project, or the folder for a single file, does not exist.
            InvalidInput: for what cannot be copied, such as a socket.
        """
        from torchx._projects.copy import merge

        merge(self.projects, os.fspath(outdir))

    def __str__(self) -> str:
        """Text for logs; ``from_str`` does not parse it."""
        if self.is_unmapped_single_project():
            return next(iter(self.projects))
        return ";".join(f"{p}:{t}" if t else p for p, t in self.projects.items())

    @staticmethod
    def from_str(workspace: str | None) -> "Workspace":
        """Reads a path, or a YAML mapping of paths to sub-directories.

        >>> Workspace.from_str("/a: b")
        Workspace(projects={'/a': 'b'})

        Raises:
            InvalidInput: if the text is neither.
        """
        if not workspace:
            return Workspace({})
        if _is_plain_path(workspace):  # the usual form; YAML takes long to import
            return Workspace({workspace: ""})
        import yaml

        try:
            parsed = yaml.safe_load(workspace)
        except yaml.YAMLError as err:
            msg = f"the workspace `{workspace}` is not a path or a YAML mapping of paths: {err}"
            raise InvalidInput(msg) from None
        if isinstance(parsed, str):
            return Workspace({parsed: ""})
        if isinstance(parsed, dict) and _are_projects(parsed):
            return Workspace({path: target or "" for path, target in parsed.items()})
        msg = (
            f"the workspace `{workspace}` is not a path or a YAML mapping of paths; write `path`,"
            " or `path: sub-directory` lines, and quote what YAML would not read as text"
        )
        raise InvalidInput(msg)


def _are_projects(parsed: dict[Any, Any]) -> bool:
    return all(
        isinstance(path, str) and (target is None or isinstance(target, str))
        for path, target in parsed.items()
    )


def _is_plain_path(text: str) -> bool:
    """Returns True if this is an absolute path that YAML reads as the same text."""
    return text[0] == "/" and text.isprintable() and not set(text) & set(":# ")
