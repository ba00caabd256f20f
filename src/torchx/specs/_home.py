"""Where TorchX keeps its own files."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def TORCHX_HOME(*subdir_paths: str) -> "Path":
    """The directory for TorchX's files, or one below it; it is made if it is missing.

    It is ``$TORCHX_HOME``, and ``~/.torchx`` where that is not set.
    """
    from pathlib import Path

    base = os.environ.get("TORCHX_HOME")
    path = (Path(base) if base else Path.home() / ".torchx").joinpath(*subdir_paths)
    path.mkdir(parents=True, exist_ok=True)
    return path
