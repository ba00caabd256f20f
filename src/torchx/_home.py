"""The directory of TorchX's own files."""

import os
from typing import TYPE_CHECKING

from torchx.errors import InvalidInput
from torchx.settings import ENV_TORCHX_HOME

if TYPE_CHECKING:
    from pathlib import Path


def TORCHX_HOME(*subdir_paths: str) -> "Path":
    """Returns the directory for TorchX's files, or a path below it; creates it if missing.

    It is ``$TORCHX_HOME``, and ``~/.torchx`` where that is not set.
    """
    from pathlib import Path

    path = Path(home_dir()).joinpath(*subdir_paths)
    path.mkdir(parents=True, exist_ok=True)
    return path


def home_dir() -> str:
    """The directory for TorchX's files, which may not exist yet."""
    given = os.environ.get(ENV_TORCHX_HOME)
    if given:
        return os.path.expanduser(given)  # a shell does not do it behind a quote
    home = os.path.expanduser("~")
    if home == "~":
        msg = "there is no home directory to keep files in; set TORCHX_HOME to a directory"
        raise InvalidInput(msg)
    return os.path.join(home, ".torchx")
