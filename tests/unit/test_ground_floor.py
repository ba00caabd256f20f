"""What lies below all packages imports nothing of them, function-level imports included."""

import ast
from pathlib import Path

import pytest

import torchx

SRC = Path(torchx.__file__).parent
GROUND = [
    "_docker",
    "_files",
    "_filesystem",
    "_home",
    "_outages",
    "_passing",
    "_projects",
    "_retry",
    "_secrets",
    "_words",
    "errors",
]
ALLOWED = {*GROUND, "_startup", "settings", "version"}
ONLY_FOR_TYPES = {"errors.py: torchx.specs.api", "errors.py: torchx.schedulers.causes"}


def imports(path: Path) -> set[str]:
    """Modules of torchx that a file imports anywhere, with what is taken of the root."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            of_root = node.module == "torchx"
            found.update(f"torchx.{a.name}" if of_root else str(node.module) for a in node.names)
    return {name for name in found if name.startswith("torchx.")}


@pytest.mark.parametrize("name", GROUND)
def test_the_ground_floor_rests_on_itself(name: str) -> None:
    files = [*(SRC / name).glob("*.py")] or [SRC / f"{name}.py"]
    for path in files:
        above = {module for module in imports(path) if module.split(".")[1] not in ALLOWED}
        assert {f"{path.name}: {module}" for module in above} <= ONLY_FOR_TYPES
