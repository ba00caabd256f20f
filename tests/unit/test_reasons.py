"""Exceptions to the rules of the linter and the type checker say why, on the same line."""

import re
from pathlib import Path

import pytest

import torchx

SRC = Path(torchx.__file__).parent
NOQA = re.compile(r"# noqa\b(?!: [A-Z]+[0-9]+(, [A-Z]+[0-9]+)*( - |  )\S)")
IGNORE = re.compile(r"# type: ignore\b(?!\[[a-z,-]+\]  # \S)")


def without_reason(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if NOQA.search(line) or IGNORE.search(line)]


def test_every_exception_to_a_rule_has_its_reason() -> None:
    found = {
        str(path.relative_to(SRC)): lines
        for path in SRC.rglob("*.py")
        if (lines := without_reason(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("x = 1  # noqa: E741 - an item", True),
        ("x = 1  # noqa: E741  an item", True),
        ("x = 1  # type: ignore[misc]  # untyped", True),
        ("x = 1  # noqa: E741", False),
        ("x = 1  # noqa", False),
        ("x = 1  # noqa: E741 reason", False),
        ("x = 1  # type: ignore", False),
        ("x = 1  # type: ignore[misc]", False),
    ],
)
def test_what_lacks_a_reason_is_found(line: str, fine: bool) -> None:
    assert without_reason(line) == ([] if fine else [line])
