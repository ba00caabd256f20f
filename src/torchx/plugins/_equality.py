"""Decides whether two plugins of one name are the same plugin, installed twice."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from torchx._resource_tags import IS_FRACTIONAL_TAG
from torchx._startup.foreign_code import importing_plugin
from torchx.plugins._types import PluginType

_RESOURCE_FIELDS = ("cpu", "gpu", "memMB", "capabilities", "devices", "tags")


def same(plugin_type: PluginType, first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    """Returns True if the two plugins are interchangeable.

    Factories of named resources are called and their resources compared; others are the same only
    if they are the same object.
    """
    if first is second:
        return True
    if plugin_type is not PluginType.NAMED_RESOURCE:
        return False
    try:
        with importing_plugin():
            return bool(_resource(first()) == _resource(second()))
    except Exception:  # noqa: BLE001 - factories of plugins may fail in any way
        return False


def _resource(made: Any) -> Any:
    if not all(hasattr(made, name) for name in _RESOURCE_FIELDS):
        return _normal(made)
    values = {name: getattr(made, name) for name in _RESOURCE_FIELDS}
    tags = dict(values["tags"])
    if tags.get(IS_FRACTIONAL_TAG) is False:
        del tags[IS_FRACTIONAL_TAG]
    return _normal({**values, "tags": tags})


def _normal(value: Any) -> Any:
    """Returns a normal form that is equal for equal structures, even of classes imported twice."""
    if isinstance(value, Enum):
        return (type(value).__name__, _normal(value.value))
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, int):
        return (type(value).__name__, int(value))
    if is_dataclass(value) and not isinstance(value, type):
        return _named(value, [(f.name, getattr(value, f.name)) for f in fields(value)])
    if isinstance(value, Mapping):
        return ("dict", _unordered((_normal(k), _normal(v)) for k, v in value.items()))
    if isinstance(value, (set, frozenset)):
        return ("set", _unordered(map(_normal, value)))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(map(_normal, value)))
    return _pairs(value) or repr(value)


def _pairs(value: Any) -> Any:
    """Returns the normal form of an object that iterates over its fields; ``None`` for others."""
    try:
        items = list(value)
    except TypeError:
        return None
    if all(isinstance(i, tuple) and len(i) == 2 and isinstance(i[0], str) for i in items):
        return _named(value, items)
    return None


def _named(value: Any, items: Iterable[tuple[str, Any]]) -> Any:
    return (type(value).__name__, tuple((name, _normal(item)) for name, item in items))


def _unordered(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(items, key=repr))
