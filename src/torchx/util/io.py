"""Reads component files, from disk or from the package."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    COMPONENTS_DIR: Path


def __getattr__(name: str) -> Any:  # on first use: every command would pay for pathlib
    if name == "COMPONENTS_DIR":
        from pathlib import Path

        return Path("torchx/components")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def get_abspath(relpath: str) -> str:
    """A path below the directory that holds the ``torchx`` package."""
    return os.path.join(_package_parent(), relpath)


def _package_parent() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _default_contents(path: str) -> str | None:
    absolute = get_abspath(path)
    if not os.path.isfile(absolute):
        return None
    with open(absolute, encoding="utf-8") as f:
        return f.read()


def read_conf_file(conf_file: str) -> str:
    """Text of a file on disk, or of one that comes with the package.

    Raises:
        FileNotFoundError: if there is neither.
    """
    if os.path.isfile(conf_file):
        with open(conf_file, encoding="utf-8") as f:
            return f.read()
    from torchx.util.entrypoints import load

    provider = load("torchx.file", "get_file_contents", default=_default_contents)
    contents: str | None = provider(conf_file)
    if contents is None:
        msg = (
            f"{conf_file} does not exist and is not a builtin."
            " For a list of available builtins run `torchx builtins`"
        )
        raise FileNotFoundError(msg)
    return contents
