"""Finds the text that is written below the fields of a class."""

import ast
import linecache
import sys
import textwrap
from itertools import pairwise


def field_docs(cls: type, base: type) -> dict[str, str]:
    """Text below each field of ``cls`` and its bases down to ``base``, stripped.

    A class whose source is not at hand contributes nothing.
    """
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if issubclass(owner, base) and owner is not base:
            docs.update(_own_docs(owner))
    return docs


def _own_docs(cls: type) -> dict[str, str]:
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    if not path:
        return {}
    lines = linecache.getlines(path, vars(module))
    fields = list(cls.__dict__.get("__annotations__", {}))
    for start in _class_lines(lines, cls.__name__):
        body = _class_body(lines, start)
        if body is not None and _annotated(body) == fields:
            return _texts(body)
    return {}


def _class_lines(lines: list[str], name: str) -> list[int]:
    found = []
    for i, line in enumerate(lines):
        words = line.split(None, 1)
        if len(words) == 2 and words[0] == "class":
            rest = words[1].lstrip()
            if rest.startswith(name) and rest[len(name) : len(name) + 1] in "(: \t[":
                found.append(i)
    return found


def _class_body(lines: list[str], start: int) -> list[ast.stmt] | None:
    """Statements of the class that begins in a line; reads no further than needed."""
    indent = _indent(lines[start])
    ends = [
        i for i in range(start + 1, len(lines)) if lines[i].strip() and _indent(lines[i]) <= indent
    ]
    # the first dedented line ends the class, unless it lies inside a bracket or a string
    for end in [*ends[:50], len(lines)]:
        try:
            tree = ast.parse(textwrap.dedent("".join(lines[start:end])))
        except SyntaxError:
            continue
        node = tree.body[0]
        return node.body if isinstance(node, ast.ClassDef) else None
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _annotated(body: list[ast.stmt]) -> list[str]:
    return [
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]


def _texts(body: list[ast.stmt]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for node, below in pairwise(body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            texts[node.target.id] = below.value.value.strip()
    return texts
