"""Fields of a scheduler's request that an app cannot express, kept in metadata until it is built.

>>> from torchx.specs import Role
>>> role = Role("trainer", "my_image")
>>> set_overlay(role, "kubernetes", "V1Pod", {"spec": {"nodeSelector": {"gpu": "a100"}}})
>>> get_overlay(role, "kubernetes", "V1Pod")
{'spec': {'nodeSelector': {'gpu': 'a100'}}}

Dicts are merged, lists are appended to, everything else is overwritten. The keys ``PUT("x")``,
``JOIN("x", on="name")`` and ``DEL("x")`` say otherwise for one field.
"""

import dataclasses
import os
from enum import Enum
from typing import Any

from torchx._filesystem import filesystem
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.errors import OverlayTypeError as OverlayTypeError
from torchx.specs._app import AppDef, Role
from torchx.specs._overlay_merge import DEL as DEL
from torchx.specs._overlay_merge import JOIN as JOIN
from torchx.specs._overlay_merge import PUT as PUT
from torchx.specs._overlay_merge import Overlay, field_of, merge
from torchx.specs._overlay_merge import apply_overlay as apply_overlay

logger = get_logger(__name__)

_MARKER = "__torchx_overlays__"


def set_overlay(target: AppDef | Role, namespace: str, kind: str, overlay: Any) -> None:
    """Stores an overlay in the metadata of an app or role; several calls accumulate.

    Args:
        namespace: owner of the overlay, for example ``kubernetes``.
        kind: the native type, for example ``V1Pod``.
        overlay: a dict, or an instance of a dataclass, of which fields that are ``None`` are left
            out.

    Raises:
        TypeError: if the overlay, or its merge with earlier ones, is invalid. Earlier overlays are
        not changed then. ValueError: if the kind is reserved.
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
    merged = merge(earlier if isinstance(earlier, dict) else {}, converted, resolve=False)
    kinds[_MARKER] = True
    kinds[kind] = merged
    metadata[namespace] = kinds


def _check_kind(kind: str) -> None:
    if kind == _MARKER:
        msg = f"overlay kind `{kind}` is reserved for the nested-format marker"
        raise InvalidInput(msg)


def _convert(overlay: Any) -> Overlay:
    """Converts a dict or a dataclass instance to plain data."""
    is_instance = dataclasses.is_dataclass(overlay) and not isinstance(overlay, type)
    if not isinstance(overlay, dict) and not is_instance:
        msg = "overlay must be a dict or dataclass instance"
        raise OverlayTypeError(msg)
    converted: Overlay = _plain(overlay, "overlay", strict=False)
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
) -> Overlay:
    """Returns the stored overlay of a kind; empty if there is none.

    If the value of a namespace is a text, it is the path or URL of a JSON or YAML file.

    Args:
        flat_fallback: take a dict that was written by hand, without kinds, for the overlay.

    Returns:
        The dict itself, not a copy; do not change it.
    """
    _check_kind(kind)
    metadata: dict[str, Any] = target.metadata
    kinds = metadata.get(namespace)
    if isinstance(kinds, str):
        kinds = load_overlay(kinds)
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


def load_overlay(uri: str) -> Overlay:
    """Reads a file of overlays: one for each kind, or the fields of one.

    Args:
        uri: path or URL of a JSON or YAML file.

    Raises:
        InvalidInput: for a file with other content.
        OSError: if it cannot be read.
    """
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
        """A YAML loader that also reads tuples, which replace lists."""

    def read_tuple(loader: Any, node: Any) -> tuple[Any, ...]:
        return tuple(loader.construct_sequence(node, deep=True))

    Loader.add_constructor("tag:yaml.org,2002:python/tuple", read_tuple)
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as err:
        msg = f"overlay file `{uri}` is neither JSON nor YAML: {' '.join(str(err).split())}"
        raise InvalidInput(msg) from None


def validate_overlay(
    overlay: Overlay,
    *,
    blocklist: list[str] | None = None,
    forbidden_keys: set[str] | None = None,
    overlay_name: str = "overlay",
    suggestion: str = "",
) -> None:
    """Refuses fields that are not allowed in an overlay; checks its top level only.

    Args:
        blocklist: fields that are set through attributes of the role or app.
        forbidden_keys: fields of another kind of overlay.
        suggestion: advice about the latter.

    Raises:
        ValueError: if there are any.
    """
    fields = list(dict.fromkeys(map(field_of, overlay)))
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
    """A kind of overlay that a scheduler accepts.

    Args:
        blocklist: fields that are set through attributes of the role or app.
    """

    namespace: str
    kind: str
    blocklist: tuple[str, ...] = ()

    def set(self, target: AppDef | Role, overlay: Any) -> None:
        """Checks an overlay and stores it; a refused one is not stored."""
        converted = _convert(overlay)
        self._validate(converted)
        set_overlay(target, self.namespace, self.kind, converted)

    def get(self, target: AppDef | Role) -> Overlay:
        """Returns the stored overlay, after checking it."""
        found = get_overlay(target, self.namespace, self.kind, flat_fallback=False)
        self._validate(found)
        return found

    def _validate(self, overlay: Overlay) -> None:
        validate_overlay(overlay, blocklist=list(self.blocklist), overlay_name=self.kind)
