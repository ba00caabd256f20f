"""Checks for plugins without importing ``torchx.plugins``, as long as there are none.

Without it each command that makes a scheduler or looks up a resource would import
``torchx.plugins`` to learn that no plugin is installed.
"""

import os
import sys
from _thread import RLock

from torchx._startup.entry_points import metadata
from torchx.settings import ENV_TORCHX_NO_ENTRYPOINTS, ENV_TORCHX_PLUGINS_SOURCE

_GROUPS = {
    "SCHEDULER": "schedulers",
    "NAMED_RESOURCE": "named_resources",
    "TRACKER": "tracker",
    "EVENT_HANDLER": "event_handlers",
}

discovery_lock = RLock()
"""Held while plugins are imported. One lock for all kinds: a module imported for one kind may look
up another, and two locks could be taken in either order.
"""


def any_plugins(kind: str) -> bool:
    """Returns True if there may be plugins of that kind, which ``torchx.plugins`` then finds.

    Args:
        kind: name of a ``PluginType``.
    """
    given = os.environ.get  # `torchx.plugins` says what is wrong with a value
    if given(ENV_TORCHX_PLUGINS_SOURCE) or given(ENV_TORCHX_NO_ENTRYPOINTS):
        return True
    if "torchx.plugins" in sys.modules:
        return True
    group = _GROUPS[kind]
    return _namespace_exists(f"torchx_plugins.{group}") or _advertised(f"torchx.{group}")


def _namespace_exists(namespace: str) -> bool:
    if not _can_be_found(namespace.partition(".")[0]):
        return False
    from torchx._startup.foreign_code import importing_plugin

    try:
        with importing_plugin():
            __import__(namespace)
    except ModuleNotFoundError as err:
        missing = err.name or ""
        return not (namespace == missing or namespace.startswith(f"{missing}."))
    except Exception:  # noqa: BLE001 - discovery meets the same failure and reports it
        pass
    return True


_not_found: "set[tuple[object, ...]]" = set()
"""Packages, each with the path on which it was not found; each call of a runner asks for some."""


def _can_be_found(package: str) -> bool:
    """Returns True if a package of that name exists; runs none of its code."""
    if package in sys.modules:
        return True
    place = (package, *sys.path, *map(id, sys.meta_path))
    if place in _not_found:
        return False
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    if any(finder.find_spec(package, None) is not None for finder in finders):
        return True
    _not_found.add(place)
    return False


def _advertised(group: str) -> bool:
    return any(True for _ in metadata.entry_points(group=group))
