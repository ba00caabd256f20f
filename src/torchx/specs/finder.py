"""Finds components: registered ones, built-in ones, and those in files and modules."""

import importlib
import os
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import configure_now
from torchx._words import did_you_mean
from torchx.errors import ComponentNotFoundException as ComponentNotFoundException
from torchx.errors import ComponentValidationException as ComponentValidationException
from torchx.specs._component_modules import (
    ComponentsFinder,
    ModuleComponentsFinder,
    component_module,
    is_namespace_package,
    is_package,
    module_exists,
    module_relname,
    problems_of,
    registrations,
)
from torchx.specs._component_modules import _Component as _Component

if TYPE_CHECKING:
    from torchx.specs.file_linter import ComponentFunctionValidator

__all__ = [
    "ComponentNotFoundException",
    "ComponentValidationException",
    "ComponentsFinder",
    "CustomComponentsFinder",
    "ModuleComponentsFinder",
    "component_module",
    "get_builtin_source",
    "get_component",
    "get_components",
    "is_namespace_package",
    "is_package",
    "module_relname",
]

_BUILTINS = "torchx.components"


class CustomComponentsFinder(ComponentsFinder):
    """Finds one component by ``PATH:NAME``; the path may be a file or a module."""

    def __init__(self, filepath: str, function_name: str) -> None:
        self._path = filepath
        self._name = function_name

    def find(self, validators: "list[ComponentFunctionValidator] | None") -> list[_Component]:
        """Returns the component.

        Raises:
            ComponentNotFoundException: if the module or the function does not exist.
            FileNotFoundError: if the file does not exist.
        """
        configure_now()
        module, source = self._load()
        fn = getattr(module, self._name, None)
        if fn is None or not callable(fn):
            candidates = [n for n, v in vars(module).items() if isinstance(v, FunctionType)]
            msg = f"Function {self._name} does not exist in {self._path}"
            raise _not_found(msg, self._name, candidates)
        errors = problems_of(source, self._name, validators)
        if isinstance(fn, type):
            if not callable(getattr(fn, "build", None)):
                errors.append(
                    f"Class component `{self._name}` must define a `build(self) -> AppDef` method"
                )
            else:
                fn = _class_component(fn)
        name = f"{self._path}:{self._name}"
        return [_Component(name, self._name, fn, errors)]

    def _load(self) -> tuple[ModuleType, str]:
        """Returns the module, and the path of its source."""
        from torchx._startup.foreign_code import component_code

        with component_code(f"`{self._path}`"):
            return self._import()

    def _import(self) -> tuple[ModuleType, str]:
        from torchx.specs._component_files import load_file

        path = self._path
        names = path.split(".")
        looks_like_module = not path.endswith(".py") and all(n.isidentifier() for n in names)
        if os.path.isfile(path) or not looks_like_module:
            return load_file(path), path
        module = _import_module(path)
        return module, os.path.abspath(str(module.__file__))


def _import_module(path: str) -> ModuleType:
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as err:
        if err.name is not None and (path == err.name or path.startswith(f"{err.name}.")):
            msg = f"Module `{path}` not found on the python path"
            raise ComponentNotFoundException(msg) from None
        raise
    if is_namespace_package(module):
        msg = (
            f"`{path}` is a namespace package, not a module; components must be addressed by the"
            " module that defines them"
        )
        raise ComponentNotFoundException(msg)
    return module


def _class_component(cls: type) -> Callable[..., Any]:
    import functools
    import inspect

    @functools.wraps(cls, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs).build()

    build.__signature__ = inspect.signature(cls)  # type: ignore[attr-defined]  # read by inspect
    return build


def _find_components(
    validators: "list[ComponentFunctionValidator] | None",
) -> dict[str, _Component]:
    """Returns the built-in components, and those of installed packages, whose names win."""
    found = _find_builtins(validators)
    for registration in registrations():
        found.update((component.name, component) for component in registration.find(validators))
    return found


def _find_builtins(
    validators: "list[ComponentFunctionValidator] | None",
) -> dict[str, _Component]:
    finder = ModuleComponentsFinder(_BUILTINS, "")
    return {component.name: component for component in finder.find(validators)}


# clients set it to None to search components again
_components: dict[str, _Component] | None = None


def _all_components(
    validators: "list[ComponentFunctionValidator] | None",
) -> dict[str, _Component]:
    global _components
    if validators is not None:
        return _find_components(validators)
    if _components is None:
        _components = _find_components(None)
    return _components


def get_components(
    validators: "list[ComponentFunctionValidator] | None" = None,
) -> dict[str, _Component]:
    """Returns all registered components without validation errors, by name.

    Components of installed packages are added to the built-in ones, and win if both have a name;
    the built-in one is then found as ``torchx.components.<name>``.
    """
    found = _all_components(validators)
    return {name: c for name, c in found.items() if not c.validation_errors}


def get_component(
    name: str, validators: "list[ComponentFunctionValidator] | None" = None
) -> _Component:
    """Returns a component by registered name, ``file.py:fn``, ``pkg.mod:fn`` or ``pkg.mod.fn``.

    Raises:
        ComponentNotFoundException: if there is none.
        ComponentValidationException: if it breaks the rules for components.
        FileNotFoundError: if its file does not exist.
    """
    if ":" in name:
        component = _custom(name, validators)
    else:
        component = _named(name, validators) or _dotted(name, validators)
    if component.validation_errors:
        errors = "\n".join(component.validation_errors)
        msg = f"Component {name} has validation errors: \n {errors}"
        raise ComponentValidationException(msg)
    return component


def _named(name: str, validators: "list[ComponentFunctionValidator] | None") -> _Component | None:
    """Returns a registered component, else a built-in one."""
    for registration in reversed(registrations()):  # the last one wins, as in the whole list
        component = registration.find_one(name, validators)
        if component is not None:
            return component
    return _builtin(name, validators) or _find_builtins(validators).get(name)


def _builtin(name: str, validators: "list[ComponentFunctionValidator] | None") -> _Component | None:
    """Returns a built-in component, which needs no check."""
    module_name, dot, fn_name = name.rpartition(".")
    parts = module_name.split(".")
    if validators is not None or not dot or not all(p.isidentifier() for p in parts):
        return None
    full = f"{_BUILTINS}.{module_name}"
    try:
        module = importlib.import_module(full)
    except ModuleNotFoundError as err:
        if err.name is not None and full.startswith(err.name):
            return None
        raise
    fn = getattr(module, fn_name, None)
    if not isinstance(fn, FunctionType) or fn.__module__ != full or fn_name.startswith("_"):
        return None
    if "return" not in fn.__annotations__ or fn.__annotations__["return"].__name__ != "AppDef":
        return None
    return _Component(name, fn_name, fn, [])


def _custom(name: str, validators: "list[ComponentFunctionValidator] | None") -> _Component:
    if name.count(":") != 1 or name.startswith(":") or name.endswith(":"):
        msg = (
            f"Component `{name}` is not of the form `path/to/file.py:fn` or `pkg.module:fn`,"
            " with exactly one colon"
        )
        raise ComponentNotFoundException(msg)
    path, fn_name = name.split(":")
    return CustomComponentsFinder(path, fn_name).find(validators)[0]


def _dotted(name: str, validators: "list[ComponentFunctionValidator] | None") -> _Component:
    module, dot, fn_name = name.rpartition(".")
    words = name.split(".")  # a file `a.py` here may be found as a module `a` as well
    is_file = os.path.isfile(name)
    if dot and not is_file and all(word.isidentifier() for word in words) and module_exists(module):
        component = CustomComponentsFinder(module, fn_name).find(validators)[0]
        component.name = name
        return component
    if name.endswith(".py") or "/" in name or is_file:
        from torchx._component_names import how_to_run

        raise ComponentNotFoundException(how_to_run(name))
    msg = (
        f"Component `{name}` not found. Please make sure it is one of the builtins: `torchx"
        " builtins`. Or registered via `[torchx.components]` entry point: `torchx plugins`."
        " Or addressable as `path/to/file.py:fn` or `pkg.module:fn`"
    )
    raise _not_found(msg, name, _all_components(None))


def _not_found(msg: str, name: str, names: Iterable[str]) -> ComponentNotFoundException:
    suggestion = did_you_mean(name, names)
    return ComponentNotFoundException(f"{msg}.{suggestion}" if suggestion else msg)


def get_builtin_source(
    name: str, validators: "list[ComponentFunctionValidator] | None" = None
) -> str:
    """Returns the source of a component with its imports, as a component file."""
    from torchx.specs._component_source import source_of

    component = get_component(name, validators)
    return source_of(component.fn, component.fn_name)
