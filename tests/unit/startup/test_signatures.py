"""Parameters are those that ``inspect`` tells."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from torchx._startup.signatures import EMPTY, parameters, takes_args


class Sample:
    def method(self, a: int, b: str = "b") -> None: ...

    def variadic(*args: int) -> None: ...

    @classmethod
    def of_class(cls, a: int) -> None: ...

    @staticmethod
    def static(a: int) -> None: ...

    def __call__(self, x: int, *, y: int) -> None: ...


def everything(a: int, /, b: str, c=3, *d: float, e, f: "int" = 6, **g: bool) -> None: ...


@functools.wraps(everything)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


FUNCTIONS: list[Callable[..., Any]] = [
    everything,
    wrapped,
    lambda: None,
    lambda a, b=1, *, c=2: None,
    Sample,
    Sample().method,
    Sample.method,
    Sample().variadic,
    Sample.of_class,
    Sample.static,
    Sample(),
    functools.partial(everything, 1, e=2),
]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_parameters_are_those_of_inspect(fn: Callable[..., Any]) -> None:
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional_only",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
        inspect.Parameter.VAR_POSITIONAL: "var_positional",
        inspect.Parameter.KEYWORD_ONLY: "keyword_only",
        inspect.Parameter.VAR_KEYWORD: "var_keyword",
    }

    def known(value: Any) -> Any:
        return EMPTY if value is inspect.Parameter.empty else value

    expected = [
        (p.name, kinds[p.kind], known(p.default), known(p.annotation))
        for p in inspect.signature(fn).parameters.values()
    ]
    assert [(p.name, p.kind, p.default, p.annotation) for p in parameters(fn)] == expected


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3, 4), {}),
    ((1, 2), {"e": 5}),
    ((1,), {"b": 2, "e": 5}),
    ((), {"a": 1, "b": 2, "e": 5}),
    ((1, 2), {"b": 3, "e": 5}),
    ((1, 2), {"e": 5, "other": 6}),
    ((1,), {"y": 2}),
    ((1,), {"b": 2}),
    ((1,), {"c": 2}),
]


@pytest.mark.parametrize("fn", [fn for fn in FUNCTIONS if fn is not wrapped])
@pytest.mark.parametrize(("args", "kwargs"), CALLS)
def test_a_call_fits_if_it_can_be_made(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    try:
        fn(*args, **kwargs)
    except TypeError:
        fits = False
    else:
        fits = True
    assert takes_args(fn, *args, **kwargs) == fits


def test_what_wraps_another_one_takes_its_arguments() -> None:
    assert takes_args(wrapped, 1, 2, e=5)
    assert not takes_args(wrapped, 1)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError):
        parameters(3)  # type: ignore[arg-type]  # on purpose


def test_what_does_not_tell_is_refused() -> None:
    with pytest.raises(ValueError, match="signature"):
        parameters(dict)
