"""Finds plugins that installed packages advertise as entry points, at little cost."""

import os
import sys

from torchx._lazy_logger import before_foreign_code

TYPE_CHECKING = False  # see `torchx/__init__.py`
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_PREFIX = b"[torchx."
_UNSET = object()


class _Metadata:
    """Stands for ``importlib.metadata``, which takes longer to import than most commands take.

    Clients replace ``torchx.util.entrypoints.metadata.entry_points``.
    """

    def entry_points(self, *, group: str) -> "Iterable[Any]":
        """The entry points of a group."""
        if "importlib.metadata" not in sys.modules and not _any_advertised():
            return ()
        from importlib.metadata import entry_points

        return entry_points(group=group)


metadata = _Metadata()

_scanned: dict[tuple[str, ...], bool] = {}


def _any_advertised() -> bool:
    """Whether any installed package may have entry points for torchx but torchx's own script."""
    key = tuple(sys.path)
    if key not in _scanned:
        _scanned[key] = any(_advertises(path) for path in key)
    return _scanned[key]


def _advertises(path: str) -> bool:
    try:
        entries = os.scandir(path or ".")
    except NotADirectoryError:
        return True  # a zip file: only importlib.metadata can look into it
    except OSError:
        return False
    with entries:
        for entry in entries:
            if entry.name.endswith((".dist-info", ".egg-info")):
                try:
                    with open(os.path.join(entry.path, "entry_points.txt"), "rb") as f:
                        if _PREFIX in f.read():
                            return True
                except OSError:
                    continue
    return False


def _find(group: str) -> "dict[str, Any]":
    return {point.name: point for point in metadata.entry_points(group=group)}


def load(group: str, name: str, default: "Any" = _UNSET) -> "Any":
    """Loads one entry point.

    Raises:
        KeyError: if there is none and no default was given. Errors while loading it propagate.
    """
    point = _find(group).get(name)
    if point is not None:
        before_foreign_code()
        return point.load()
    if default is _UNSET:
        msg = f"entrypoint {group}.{name} not found"
        raise KeyError(msg)
    return default


def load_group(group: str) -> "dict[str, Callable[..., Any]]":
    """Deferred loaders of the entry points of a group, by name; nothing is imported yet.

    Calling a loader imports the target and calls it with the same arguments. A target that is a
    module is returned instead.
    """
    return {name: _defer(point) for name, point in _find(group).items()}


def _defer(point: "Any") -> "Callable[..., Any]":
    def call(*args: "Any", **kwargs: "Any") -> "Any":
        before_foreign_code()
        target = point.load()
        return target if _is_module(point) else target(*args, **kwargs)

    return call


def _is_module(point: "Any") -> bool:
    return ":" not in point.value
