"""Runs the examples in docstrings, and asks for what every public name must tell."""

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import torchx

NEEDS_TORCH = "torchx.distributed"


def modules() -> Iterator[str]:
    yield "torchx"
    for info in pkgutil.walk_packages(torchx.__path__, "torchx.", onerror=lambda name: None):
        if not info.name.endswith("__main__"):
            yield info.name


@pytest.mark.parametrize("name", [n for n in modules() if not n.startswith(NEEDS_TORCH)])
def test_examples_in_docstrings_are_right(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in modules()
        if not n.startswith(NEEDS_TORCH) and not any(part.startswith("_") for part in n.split("."))
    ],
)
def test_public_modules_classes_and_functions_have_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    without = [
        f"{name}.{attribute}"
        for attribute, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
        and not attribute.startswith("_")
        and not value.__doc__
    ]
    assert without == []
