"""Checks objects of the core against the schemas that the package ``kubernetes-validate`` carries.

As the real server: fields that it does not know are refused when strict, dropped otherwise; a wrong
type is a bad request; what is required and missing makes the object invalid.
"""

import json
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .kinds import Kind
from .statuses import bad_request, invalid

LATEST = (1, 34)
_PYTHON_TYPES = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_GO_TYPES = {"integer": "int32", "boolean": "bool", "array": "[]", "object": "struct"}


@lru_cache(maxsize=2)
def definitions(version: tuple[int, int]) -> dict[str, Any]:
    """All definitions of one version of Kubernetes."""
    spec = find_spec("kubernetes_validate")  # its import loads much that is not needed here
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "kubernetes-json-schema"
    name = f"v{version[0]}.{version[1]}.0-local"
    found: dict[str, Any] = json.loads((folder / name / "_definitions.json").read_bytes())["$defs"]
    return found


class _Walk:
    """One walk through an object; keeps what it finds wrong."""

    def __init__(self, defs: dict[str, Any]) -> None:
        self.defs = defs
        self.unknown: list[str] = []
        self.missing: list[tuple[str, str]] = []
        self.mistyped: list[str] = []

    def clean(self, value: Any, schema: dict[str, Any], path: str) -> Any:
        """The value without unknown fields and nulls."""
        if "$ref" in schema:
            schema = self.defs[schema["$ref"].rpartition("/")[2]]
        if value is None:
            return None
        options = schema.get("oneOf") or [schema]
        if not any(_fits(value, option) for option in options):
            self.mistyped.append(f"{path}: cannot unmarshal {_word(value)} into {_go(options)}")
            return value
        if isinstance(value, dict):
            return self._object(value, schema, path)
        if isinstance(value, list) and "items" in schema:
            return [
                self.clean(item, schema["items"], f"{path}[{i}]") for i, item in enumerate(value)
            ]
        return value

    def _object(self, value: dict[str, Any], schema: dict[str, Any], path: str) -> dict[str, Any]:
        known = schema.get("properties")
        if known is None:
            extra = schema.get("additionalProperties")
            if not isinstance(extra, dict):
                return value
            return {k: self.clean(v, extra, f"{path}.{k}") for k, v in value.items()}
        self.unknown += [f"{path}.{key}".lstrip(".") for key in value if key not in known]
        for key in schema.get("required", ()):
            if value.get(key) in (None, [], {}):
                self.missing.append((f"{path}.{key}".lstrip("."), "Required value"))
        cleaned = {
            key: self.clean(item, known[key], f"{path}.{key}")
            for key, item in value.items()
            if key in known
        }
        return {key: item for key, item in cleaned.items() if item is not None}


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    types = schema.get("type")
    if types is None:
        return True
    types = types if isinstance(types, list) else [types]
    if isinstance(value, bool):
        return "boolean" in types
    return any(isinstance(value, _PYTHON_TYPES[name]) for name in types)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    names = ((str, "string"), (dict, "object"), (list, "array"))
    return next((name for type_, name in names if isinstance(value, type_)), "number")


def _go(options: list[dict[str, Any]]) -> str:
    types = options[0].get("type", "object")
    name = types if isinstance(types, str) else types[0]
    return f"Go value of type {_GO_TYPES.get(name, name)}"


def checked(
    kind: Kind, obj: dict[str, Any], version: tuple[int, int], validation: str
) -> dict[str, Any]:
    """The object as the server reads it; raises what it answers if it cannot.

    Args:
        validation: ``Strict``, ``Warn`` or ``Ignore``.
    """
    if not kind.schema:
        return obj
    defs = definitions(version)
    walk = _Walk(defs)
    cleaned: dict[str, Any] = walk.clean(obj, defs[kind.schema], "")
    said = f'{kind.name} in version "v1" cannot be handled as a {kind.name}'
    if walk.mistyped:
        raise bad_request(f"{said}: json: {walk.mistyped[0].lstrip('.')}")
    if walk.unknown and validation == "Strict":
        fields = ", ".join(f'unknown field "{field}"' for field in walk.unknown)
        raise bad_request(f"{said}: strict decoding error: {fields}")
    if walk.missing:
        group = f".{kind.group}" if kind.group else ""
        raise invalid(f"{kind.name}{group}", obj["metadata"].get("name", ""), walk.missing)
    return cleaned
