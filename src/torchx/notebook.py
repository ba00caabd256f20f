"""Runs jobs from a notebook: cells become files of a workspace that is kept in memory.

After ``import torchx.notebook``, a cell that begins with ``%%workspacefile pkg/train.py`` is stored
under that name, and ``get_workspace()`` is what to give to the runner:

    runner.run_component(..., workspace=torchx.notebook.get_workspace())

Needs ``torchx[notebook]`` and ``torchx[fsspec]``. Outside of IPython it can be imported too.
"""

import posixpath

from torchx._filesystem import filesystem
from torchx.errors import InvalidInput

__all__ = ["get_workspace", "workspacefile"]

_WORKSPACE = "memory://torchx-workspace/"


def get_workspace() -> str:
    """URL of the workspace, which lives as long as this process."""
    return _WORKSPACE


def workspacefile(line: str, cell: str) -> None:
    """Stores a cell in the workspace, in the place of an earlier one of that name.

    Args:
        line: path of the file, relative to the workspace.
        cell: its content, kept as it is.

    Raises:
        IsADirectoryError: if the line names no file, or a folder that is there.
        ValueError: if the path leaves the workspace.
    """
    path = line.strip().strip("\"'")
    if path.rpartition("/")[2] in ("", ".", ".."):
        msg = f"give the file a name, as in `%%workspacefile pkg/train.py`; given: `{line}`"
        raise IsADirectoryError(msg)
    normal = posixpath.normpath(path)
    if normal.startswith(("/", "../")):
        msg = f"the path must be inside of the workspace, given: `{path}`"
        raise InvalidInput(msg)
    fs, base = filesystem(_WORKSPACE)
    target = f"{base.rstrip('/')}/{normal}"
    if fs.isdir(target):
        msg = f"`{path}` is a folder of the workspace, give the file another name"
        raise IsADirectoryError(msg)
    fs.makedirs(fs._parent(target), exist_ok=True)
    fs.pipe_file(target, cell.encode())
    print(f"Added {path} to workspace {_WORKSPACE}")  # noqa: T201 - the answer to the magic


def load_ipython_extension(shell: object) -> None:
    """Adds the magic to a shell; called by ``%load_ext torchx.notebook`` and by the import."""
    shell.register_magic_function(  # type: ignore[attr-defined]  # an InteractiveShell
        workspacefile, magic_kind="cell", magic_name="workspacefile"
    )


def _register() -> None:
    """Adds the magic to the running shell, if there is one; does not import IPython."""
    import sys

    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        load_ipython_extension(shell)


_register()
