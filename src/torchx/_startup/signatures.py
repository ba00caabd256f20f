"""The parameters of a function without ``inspect``, which takes 3 ms to import.

``inspect`` is used only for callables that are not plain functions.
"""

from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    Kind = Literal["positional_only", "positional", "var_positional", "keyword_only", "var_keyword"]

_HAS_VAR_POSITIONAL = 4  # as in `inspect.CO_VARARGS`
_HAS_VAR_KEYWORD = 8

_POSITIONAL = ("positional_only", "positional")


class EMPTY:
    """Marks a missing default or annotation."""


class Parameter:
    """A parameter of a function."""

    __slots__ = ("annotation", "default", "kind", "name")

    def __init__(self, name: str, kind: "Kind", default: Any, annotation: Any) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.annotation = annotation


def parameters(fn: "Callable[..., Any]") -> list[Parameter]:
    """Returns the parameters of a callable in order, without ``self`` of a method.

    >>> def greet(name: str, *, twice=False): ...
    >>> [(p.name, p.kind) for p in parameters(greet)]
    [('name', 'positional'), ('twice', 'keyword_only')]

    Raises:
        TypeError: if it cannot be called.
        ValueError: if it is built in and has no signature.
    """
    plain = fn.__func__ if isinstance(fn, MethodType) else fn
    if not isinstance(plain, FunctionType) or vars(plain).keys() & {"__wrapped__", "__signature__"}:
        return _inspected(fn)
    found = _declared(plain)
    bound = plain is not fn and found and found[0].kind in _POSITIONAL
    return found[1:] if bound else found


def _declared(fn: FunctionType) -> list[Parameter]:
    code = fn.__code__
    names = code.co_varnames
    ends = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    annotations = fn.__annotations__
    defaults = dict(fn.__kwdefaults__ or ())
    given = fn.__defaults__ or ()
    defaults.update(zip(names[ends[0] - len(given) : ends[0]], given, strict=True))

    def parameter(name: str, kind: "Kind") -> Parameter:
        return Parameter(name, kind, defaults.get(name, EMPTY), annotations.get(name, EMPTY))

    found = [
        parameter(name, "positional_only" if i < code.co_posonlyargcount else "positional")
        for i, name in enumerate(names[: ends[0]])
    ]
    at = ends[1]
    if code.co_flags & _HAS_VAR_POSITIONAL:
        found.append(parameter(names[at], "var_positional"))
        at += 1
    found += [parameter(name, "keyword_only") for name in names[slice(*ends)]]
    if code.co_flags & _HAS_VAR_KEYWORD:
        found.append(parameter(names[at], "var_keyword"))
    return found


def _inspected(fn: "Callable[..., Any]") -> list[Parameter]:
    import inspect

    kinds: dict[object, Kind] = {
        inspect.Parameter.POSITIONAL_ONLY: "positional_only",
        inspect.Parameter.VAR_POSITIONAL: "var_positional",
        inspect.Parameter.KEYWORD_ONLY: "keyword_only",
        inspect.Parameter.VAR_KEYWORD: "var_keyword",
    }

    def known(value: Any) -> Any:  # any default or annotation
        return EMPTY if value is inspect.Parameter.empty else value

    return [
        Parameter(p.name, kinds.get(p.kind, "positional"), known(p.default), known(p.annotation))
        for p in inspect.signature(fn).parameters.values()
    ]


def takes_args(fn: "Callable[..., Any]", *args: object, **kwargs: object) -> bool:
    """Returns True if the callable accepts these arguments.

    Raises:
        TypeError: if ``fn`` cannot be called; ``ValueError`` if it has no signature.
    """
    declared = parameters(fn)
    kinds = {p.kind for p in declared}
    by_place = [p.name for p in declared if p.kind in _POSITIONAL]
    if len(args) > len(by_place) and "var_positional" not in kinds:
        return False
    given = set(by_place[: len(args)])
    by_name = {p.name for p in declared if p.kind in ("positional", "keyword_only")} - given
    if kwargs.keys() & given or (kwargs.keys() - by_name and "var_keyword" not in kinds):
        return False
    needed = {p.name for p in declared if p.default is EMPTY and not p.kind.startswith("var_")}
    return needed - given <= kwargs.keys() & by_name
