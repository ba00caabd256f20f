"""Fields of a scheduler's request that an app cannot express, kept in metadata until it is built.

>>> from torchx.specs import Role
>>> role = Role("trainer", "my_image")
>>> set_overlay(role, "kubernetes", "V1Pod", {"spec": {"nodeSelector": {"gpu": "a100"}}})
>>> get_overlay(role, "kubernetes", "V1Pod")
{'spec': {'nodeSelector': {'gpu': 'a100'}}}

Dicts are merged, lists are appended to, everything else is overwritten. The keys ``PUT("x")``,
``JOIN("x", on="name")`` and ``DEL("x")`` say otherwise for one field.
"""

import copy
import dataclasses
import os
from collections.abc import Iterable
from enum import Enum
from typing import Any

from torchx._filesystem import filesystem
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.errors import OverlayTypeError as OverlayTypeError
from torchx.specs._app import AppDef, Role

logger = get_logger(__name__)

_Overlay = dict[str, Any]

_PUT = "__put__:"
_DEL = "__del__:"
_JOIN = "__join__:"
_MARKER = "__torchx_overlays__"
_ABSENT = object()


def PUT(key: str) -> str:
    """Key of an overlay that replaces the field instead of merging into it.

    >>> base = {"tags": ["old"]}
    >>> apply_overlay(base, {PUT("tags"): ["new"]})
    >>> base
    {'tags': ['new']}
    """
    return f"{_PUT}{key}"


def DEL(key: str) -> str:
    """Key of an overlay that removes the field; its value is ignored.

    >>> base = {"keep": 1, "drop": 2}
    >>> apply_overlay(base, {DEL("drop"): None})
    >>> base
    {'keep': 1}
    """
    return f"{_DEL}{key}"


def JOIN(key: str, *, on: str) -> str:
    """Key of an overlay that merges the items of a list which agree in the field ``on``.

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


def _field_of(key: str) -> str:
    """The field that a key speaks of."""
    if key.startswith(_PUT):
        return key[len(_PUT) :]
    if key.startswith(_DEL):
        return key[len(_DEL) :]
    if key.startswith(_JOIN):
        return key[len(_JOIN) :].partition(":")[0]
    return key


def apply_overlay(base: dict[str, Any], overlay: _Overlay, *, _resolve: bool = True) -> None:
    """Merges an overlay into a request, in place. The overlay is left as it is.

    Args:
        _resolve: internal; ``False`` keeps operators as keys, for overlays that accumulate.

    Raises:
        TypeError: if a container meets something else, or a JOIN finds no list of dicts. The
            request is as it was then.
        ValueError: if a JOIN key is malformed.
    """
    _commit(base, _merge(base, overlay, _resolve))


def _commit(base: dict[str, Any], merged: dict[str, Any]) -> None:
    """Makes ``base`` equal to ``merged``; dicts inside stay the same objects."""
    for key, value in merged.items():
        held = base.get(key)
        if isinstance(held, dict) and isinstance(value, dict) and held is not value:
            _commit(held, value)
            merged[key] = held
    base.clear()
    base.update(merged)


def _merge(base: dict[str, Any], overlay: _Overlay, resolve: bool) -> dict[str, Any]:
    """A new dict; what the overlay does not touch is shared with ``base``."""
    merged = dict(base)
    operators: dict[str, list[str]] = {}
    for key in merged:
        if _is_operator(key):
            operators.setdefault(_field_of(key), []).append(key)
    for key, value in overlay.items():
        field = _field_of(key) if _is_operator(key) else key
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
            return _merge({}, value, resolve)
        return copy.deepcopy(list(value) if isinstance(value, tuple) else value)
    if isinstance(held, dict) and isinstance(value, dict):
        return _merge(held, value, resolve)
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
    """The list that a JOIN gives, from what is there under the field and under stored keys."""
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


def set_overlay(target: AppDef | Role, namespace: str, kind: str, overlay: Any) -> None:
    """Keeps an overlay in the metadata of an app or role; several calls accumulate.

    Args:
        namespace: whose overlay it is, ``kubernetes`` for one.
        kind: the native type that it is for, ``V1Pod`` for one.
        overlay: a dict, or an instance of a dataclass, of which fields that are ``None`` are left
            out.

    Raises:
        TypeError: if the overlay, or its sum with earlier ones, does not fit. What was kept before
            is untouched then.
        ValueError: if the kind is reserved.
    """
    _check_kind(kind)
    converted = _convert(overlay)
    metadata: dict[str, Any] = target.metadata
    held = metadata.get(namespace)
    if held is not None and not isinstance(held, dict):
        logger.warning(
            "the metadata `%s`, a %s, is replaced by an overlay", namespace, type(held).__name__
        )
    kinds = held if isinstance(held, dict) else {}
    earlier = kinds.get(kind)
    merged = _merge(earlier if isinstance(earlier, dict) else {}, converted, resolve=False)
    kinds[_MARKER] = True
    kinds[kind] = merged
    metadata[namespace] = kinds


def _check_kind(kind: str) -> None:
    if kind == _MARKER:
        msg = f"overlay kind `{kind}` is reserved for the nested-format marker"
        raise InvalidInput(msg)


def _convert(overlay: Any) -> _Overlay:
    """Plain data of a dict or a dataclass instance."""
    is_instance = dataclasses.is_dataclass(overlay) and not isinstance(overlay, type)
    if not isinstance(overlay, dict) and not is_instance:
        msg = "overlay must be a dict or dataclass instance"
        raise OverlayTypeError(msg)
    converted: _Overlay = _plain(overlay, "overlay", strict=False)
    return converted


def _plain(value: Any, path: str, strict: bool) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(held, f"{path}.{field.name}", strict=True)
            for field in dataclasses.fields(value)
            if (held := getattr(value, field.name)) is not None
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        if strict and not all(isinstance(key, str) for key in value):
            msg = f"{path}: dataclass overlay mapping keys must be strings"
            raise OverlayTypeError(msg)
        return {k: _plain(v, f"{path}[{k!r}]", strict) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_plain(v, f"{path}[{i}]", strict) for i, v in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    if strict and not (value is None or isinstance(value, (str, int, float, bool))):
        msg = (
            f"{path}: unsupported dataclass overlay value {type(value)}; expected a primitive,"
            " enum, dataclass, dict, list, or tuple"
        )
        raise OverlayTypeError(msg)
    return value


def get_overlay(
    target: AppDef | Role, namespace: str, kind: str, *, flat_fallback: bool = True
) -> _Overlay:
    """The overlay that is kept for a kind; empty if there is none.

    A text in the place of a namespace is the path or URL of a JSON or YAML file that holds it.

    Args:
        flat_fallback: take a dict that was written by hand, without kinds, for the overlay.

    Returns:
        The dict itself, not a copy; do not change it.
    """
    _check_kind(kind)
    metadata: dict[str, Any] = target.metadata
    kinds = metadata.get(namespace)
    if isinstance(kinds, str):
        kinds = _load(kinds)
    if not isinstance(kinds, dict):
        return {}
    found = kinds.get(kind)
    if isinstance(found, dict):
        return found
    if kinds.get(_MARKER):
        others = [name for name in kinds if name != _MARKER]
        if others:
            logger.debug("no overlay `%s` in `%s`, there is: %s", kind, namespace, others)
        return {}
    looks_nested = len(kinds) > 1 and all(isinstance(v, dict) for v in kinds.values())
    if not flat_fallback or not kinds or looks_nested:
        return {}
    logger.warning(
        "the metadata `%s` is taken for a flat overlay of kind `%s`;"
        " write it with `set_overlay(target, %r, %r, ...)`",
        namespace,
        kind,
        namespace,
        kind,
    )
    return kinds


def _load(uri: str) -> _Overlay:
    import json

    text = _read(uri)
    try:
        loaded = json.loads(text)
    except ValueError:
        loaded = _load_yaml(text, uri)
    if not isinstance(loaded, dict):
        msg = f"overlay file `{uri}` must contain a dict, got {type(loaded)}"
        raise InvalidInput(msg)
    return loaded


def _read(uri: str) -> str:
    path = uri.removeprefix("file://")
    if "://" not in path:
        with open(os.path.expanduser(path), encoding="utf-8") as f:
            return f.read()
    fs, path = filesystem(uri)
    with fs.open(path, "r", encoding="utf-8") as f:
        text: str = f.read()
    return text


def _load_yaml(text: str, uri: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Also reads tuples, which replace lists."""

    def read_tuple(loader: Any, node: Any) -> tuple[Any, ...]:
        return tuple(loader.construct_sequence(node, deep=True))

    Loader.add_constructor("tag:yaml.org,2002:python/tuple", read_tuple)
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as err:
        msg = f"overlay file `{uri}` is neither JSON nor YAML: {err}"
        raise InvalidInput(msg) from None


def validate_overlay(
    overlay: _Overlay,
    *,
    blocklist: list[str] | None = None,
    forbidden_keys: set[str] | None = None,
    overlay_name: str = "overlay",
    suggestion: str = "",
) -> None:
    """Refuses fields that do not belong into an overlay; looks at its top level only.

    Args:
        blocklist: fields that are set through attributes of the role or app.
        forbidden_keys: fields of another kind of overlay.
        suggestion: said about the latter.

    Raises:
        ValueError: if there are any.
    """
    fields = list(dict.fromkeys(map(_field_of, overlay)))
    blocked = [field for field in fields if field in (blocklist or ())]
    if blocked:
        names = ", ".join(f"`{overlay_name}.{field}`" for field in blocked)
        msg = (
            f"disallowed overlay attributes {names}"
            " since they can be set directly on the role's attributes."
        )
        raise InvalidInput(msg)
    misplaced = {field for field in fields if field in (forbidden_keys or ())}
    if misplaced:
        msg = f"{overlay_name} overlay contains misplaced keys: {misplaced}."
        raise InvalidInput(f"{msg} {suggestion}" if suggestion else msg)


@dataclasses.dataclass(frozen=True)
class OverlaySpec:
    """One kind of overlay that a scheduler takes.

    Args:
        blocklist: fields that are set through attributes of the role or app.
    """

    namespace: str
    kind: str
    blocklist: tuple[str, ...] = ()

    def set(self, target: AppDef | Role, overlay: Any) -> None:
        """Checks an overlay and keeps it; one that is refused leaves nothing behind."""
        converted = _convert(overlay)
        self._validate(converted)
        set_overlay(target, self.namespace, self.kind, converted)

    def get(self, target: AppDef | Role) -> _Overlay:
        """The overlay that is kept, checked."""
        found = get_overlay(target, self.namespace, self.kind, flat_fallback=False)
        self._validate(found)
        return found

    def _validate(self, overlay: _Overlay) -> None:
        validate_overlay(overlay, blocklist=list(self.blocklist), overlay_name=self.kind)
