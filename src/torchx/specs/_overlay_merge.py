"""Merges overlays into requests: by plain keys, and by ``PUT``, ``DEL`` and ``JOIN``."""

import copy
from collections.abc import Iterable
from typing import Any

from torchx.errors import InvalidInput, OverlayTypeError

Overlay = dict[str, Any]

_PUT = "__put__:"
_DEL = "__del__:"
_JOIN = "__join__:"
_ABSENT = object()


def PUT(key: str) -> str:
    """Returns the key of an overlay that replaces the field instead of merging into it.

    >>> base = {"tags": ["old"]}
    >>> apply_overlay(base, {PUT("tags"): ["new"]})
    >>> base
    {'tags': ['new']}
    """
    return f"{_PUT}{key}"


def DEL(key: str) -> str:
    """Returns the key of an overlay that removes the field; its value is ignored.

    >>> base = {"keep": 1, "drop": 2}
    >>> apply_overlay(base, {DEL("drop"): None})
    >>> base
    {'keep': 1}
    """
    return f"{_DEL}{key}"


def JOIN(key: str, *, on: str) -> str:
    """Returns the key of an overlay that merges list items with equal values of ``on``.

    >>> base = {"containers": [{"name": "main", "image": "v1"}]}
    >>> apply_overlay(base, {JOIN("containers", on="name"): [{"name": "main", "cpu": 1}]})
    >>> base
    {'containers': [{'name': 'main', 'image': 'v1', 'cpu': 1}]}

    Raises:
        ValueError: if the field holds a ``:``, which ends it in the stored key, or ``on`` is empty.
    """
    if ":" in key or not on:
        msg = f"JOIN({key!r}, on={on!r}): the field must not hold `:`, and `on` must not be empty"
        raise InvalidInput(msg)
    return f"{_JOIN}{key}:{on}"


def _is_operator(key: Any) -> bool:
    return isinstance(key, str) and key.startswith((_PUT, _DEL, _JOIN))


def field_of(key: str) -> str:
    """Returns the field of a key."""
    if key.startswith(_PUT):
        return key[len(_PUT) :]
    if key.startswith(_DEL):
        return key[len(_DEL) :]
    if key.startswith(_JOIN):
        return key[len(_JOIN) :].partition(":")[0]
    return key


def apply_overlay(base: dict[str, Any], overlay: Overlay, *, _resolve: bool = True) -> None:
    """Merges an overlay into a request, in place. The overlay is not changed.

    Args:
        _resolve: internal; ``False`` keeps operators as keys, for overlays that accumulate.

    Raises:
        TypeError: if a container meets something else, or a JOIN finds no list of dicts. The
        request is not changed then. ValueError: if a JOIN key is malformed.
    """
    _commit(base, merge(base, overlay, _resolve))


def _commit(base: dict[str, Any], merged: dict[str, Any]) -> None:
    """Makes ``base`` equal to ``merged``; dicts inside stay the same objects."""
    for key, value in merged.items():
        held = base.get(key)
        if isinstance(held, dict) and isinstance(value, dict) and held is not value:
            _commit(held, value)
            merged[key] = held
    base.clear()
    base.update(merged)


def merge(base: dict[str, Any], overlay: Overlay, resolve: bool) -> dict[str, Any]:
    """Returns a new dict; parts that the overlay does not touch are shared with ``base``."""
    merged = dict(base)
    operators: dict[str, list[str]] = {}
    for key in merged:
        if _is_operator(key):
            operators.setdefault(field_of(key), []).append(key)
    for key, value in overlay.items():
        field = field_of(key) if _is_operator(key) else key
        stored = operators.pop(field, [])
        if not _is_operator(key):
            _drop(merged, stored)
            merged[key] = _merge_value(key, merged.get(key, _ABSENT), value, resolve)
            continue
        if key.startswith(_JOIN):
            result = _join(merged, stored, key, value, resolve)
        else:
            result = copy.deepcopy(value)
        _drop(merged, [*stored, field])
        if resolve:
            if not key.startswith(_DEL):
                merged[field] = result
        else:
            merged[key] = result
            operators[field] = [key]
    return merged


def _drop(merged: dict[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        merged.pop(key, None)


def _merge_value(key: str, held: Any, value: Any, resolve: bool) -> Any:
    if held is _ABSENT:
        if isinstance(value, dict):
            return merge({}, value, resolve)
        return copy.deepcopy(list(value) if isinstance(value, tuple) else value)
    if isinstance(held, dict) and isinstance(value, dict):
        return merge(held, value, resolve)
    if isinstance(held, list) and isinstance(value, (list, tuple)):
        added = copy.deepcopy(list(value))
        return added if isinstance(value, tuple) else [*held, *added]
    if isinstance(held, (dict, list)) or isinstance(value, (dict, list)):
        msg = f"type mismatch for attr: `{key}`. {type(held)} != {type(value)}"
        raise OverlayTypeError(msg)
    return copy.deepcopy(value)


def _join(
    merged: dict[str, Any], stored: list[str], key: str, value: Any, resolve: bool
) -> list[Any]:
    """Returns the result of a JOIN, from the values of the field and of stored keys."""
    field, colon, on = key[len(_JOIN) :].partition(":")
    if not colon or not on or not field:
        msg = f"malformed JOIN key: `{key}`, expected format from JOIN(field, on=key)"
        raise InvalidInput(msg)
    if not isinstance(value, list):
        msg = f"JOIN requires a list value, got {type(value)} for field `{field}`"
        raise OverlayTypeError(msg)
    if not all(isinstance(item, dict) for item in value):
        msg = (
            "JOIN requires a list of dicts as overlay value, but"
            f" `{field}` overlay contains non-dict items"
        )
        raise OverlayTypeError(msg)
    held = merged.get(field, _ABSENT)
    if not resolve:
        if key in stored:
            held = merged[key]
        elif stored or not isinstance(held, list):
            held = _ABSENT  # the later call wins
    if held is _ABSENT:
        return copy.deepcopy(value)
    if not isinstance(held, list):
        msg = f"JOIN requires base[`{field}`] to be a list, got {type(held)}"
        raise OverlayTypeError(msg)
    if not all(isinstance(item, dict) for item in held):
        msg = f"JOIN requires a list of dicts, but `{field}` contains non-dict items"
        raise OverlayTypeError(msg)
    return _join_items(held, value, on)


def _join_items(held: list[dict[str, Any]], added: list[dict[str, Any]], on: str) -> list[Any]:
    items = list(held)
    positions: dict[Any, int] = {}
    for at, item in enumerate(items):
        if on in item and _hashable(item[on]):
            positions[item[on]] = at
    for item in added:
        found = positions.get(item[on]) if on in item and _hashable(item[on]) else None
        if found is None:
            items.append(copy.deepcopy(item))
        else:
            fields = {k: copy.deepcopy(v) for k, v in item.items() if k != on}
            items[found] = {**items[found], **fields}
    return items


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
