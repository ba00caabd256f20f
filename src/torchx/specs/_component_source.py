"""The source of a component with what it needs of its module, for a file of its own."""

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any


def source_of(fn: Callable[..., Any], fn_name: str) -> str:
    """A component file: the imports of the function's module, what it uses there, and itself."""
    fn = inspect.unwrap(fn)
    module = inspect.getmodule(fn)
    assert module is not None
    source = inspect.getsource(module)
    imports = [
        ast.get_source_segment(source, node) or ""
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    helpers = _helpers(source, inspect.getsource(fn), fn_name)
    return "\n".join([*imports, "\n", *helpers, inspect.getsource(fn)])


def _helpers(module_source: str, fn_source: str, fn_name: str) -> list[str]:
    """Source of the private functions and constants of the module that the function uses."""
    parts: list[str] = []
    wanted = fn_source
    definitions = []
    for node in ast.parse(module_source).body:
        names: list[str] = []
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        definitions.append((names, ast.get_source_segment(module_source, node) or ""))
    for names, text in reversed(definitions):
        used = any(n != fn_name and re.search(rf"\b{n}\b", wanted) for n in names)
        if used:
            parts.insert(0, f"{text}\n\n")
            wanted += text
    return parts
