"""Renders objects as YAML; parts that many pods share are rendered once. Pure."""

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Texts that YAML interprets differently without quotes."""


def render_objects(objects: Iterable[Mapping[str, Any]]) -> str:
    """Renders one document for each object.

    >>> print(render_objects([{"kind": "Job", "spec": {"args": ["a", "1", 2]}}]), end="")
    kind: Job
    spec:
      args:
      - a
      - '1'
      - 2
    """
    return "---\n".join(_Writer().document(obj) for obj in objects)


class _Writer:
    """Caches the text of the parts of one object, by identity and depth."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}

    def document(self, obj: Mapping[str, Any]) -> str:
        return self._block(obj, 0) if obj else "{}\n"

    def _block(self, value: Any, depth: int) -> str:
        """Renders a non-empty mapping or sequence."""
        key = (id(value), depth)
        text = self._known.get(key)
        if text is None:
            pad = "  " * depth
            if isinstance(value, Mapping):
                text = "".join(
                    f"{pad}{_scalar(name)}:{self._after(item, depth)}"
                    for name, item in value.items()
                )
            else:
                text = "".join(self._item(item, depth, pad) for item in value)
            self._known[key] = text
        return text

    def _after(self, value: Any, depth: int) -> str:
        """Renders the text after the name of a field."""
        if not _is_block(value):
            return f" {_scalar(value)}\n"
        if isinstance(value, Mapping):
            return f"\n{self._block(value, depth + 1)}"
        return f"\n{self._block(value, depth)}"  # the dashes are below the name

    def _item(self, value: Any, depth: int, pad: str) -> str:
        if not _is_block(value):
            return f"{pad}- {_scalar(value)}\n"
        if isinstance(value, Mapping):
            return f"{pad}- {self._block(value, depth + 1)[len(pad) + 2 :]}"
        return f"{pad}-\n{self._block(value, depth + 1)}"


def _is_block(value: Any) -> bool:
    return isinstance(value, (Mapping, Sequence)) and not isinstance(value, str) and bool(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return f"'{value}'" if value.isascii() and value.isdigit() else _quoted(value)
    if isinstance(value, (Mapping, Sequence)):
        return "{}" if isinstance(value, Mapping) else "[]"
    return json.dumps(value)


@functools.lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    """Renders a text that may need quotes; several lines become one."""
    import yaml

    if not text.isprintable():
        return str(yaml.safe_dump(text, default_style='"', width=float("inf"))).rstrip("\n")
    dumped = yaml.dump(
        text,
        Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
        allow_unicode=True,
        width=1 << 20,
    )
    return str(dumped).removesuffix("...\n").rstrip("\n")
