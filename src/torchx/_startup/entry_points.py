"""Looks for entry points without importing ``importlib.metadata``, as long as there are none.

That module takes longer to import than most commands take. Without this one every command, also
``--help``, would import it, and read the metadata of each installed package.
"""

import os
import sys

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_PREFIX = b"[torchx."


class LazyMetadata:
    """Replaces ``importlib.metadata`` until it is needed."""

    def entry_points(self, *, group: str) -> "Iterable[Any]":
        """The entry points of a group."""
        if "importlib.metadata" not in sys.modules and not _any_advertised(group):
            return ()
        from importlib.metadata import entry_points

        return entry_points(group=group)


metadata = LazyMetadata()
"""Clients replace its ``entry_points``, by its name in ``torchx.util.entrypoints``."""

_scanned: "dict[tuple[str, ...], frozenset[bytes] | None]" = {}


def _any_advertised(group: str) -> bool:
    """Returns True if any installed package may have entry points of the group."""
    path = tuple(sys.path)
    if path not in _scanned:
        _scanned[path] = _groups(path)
    groups = _scanned[path]
    return groups is None or group.encode() in groups


def _groups(path: "Iterable[str]") -> "frozenset[bytes] | None":
    """Returns the TorchX groups in ``entry_points.txt`` below a path; ``None`` if unknown."""
    found: set[bytes] = set()
    for folder in path:
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:
            return None  # a zip file: only importlib.metadata can look into it
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                found.update(_groups_in(os.path.join(folder, name, "entry_points.txt")))
    return frozenset(found)


def _groups_in(file: str) -> "Iterable[bytes]":
    try:
        with open(file, "rb", buffering=0) as f:
            text = f.readall()
    except OSError:
        return ()
    if _PREFIX not in text:
        return ()
    return [line.strip()[1:-1].strip() for line in text.splitlines() if _PREFIX in line]
