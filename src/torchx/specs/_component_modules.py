"""Finds components in modules: in a module and its submodules, and those of packages."""

import abc
import importlib
import os
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import ComponentNotFoundException

if TYPE_CHECKING:
    from torchx.specs.file_linter import ComponentFunctionValidator

logger = get_logger(__name__)

_GROUP = "torchx.components"


class _Component:
    """A component that was found.

    Args:
        name: name by which it was found.
        fn_name: name in its module.
        validation_errors: its problems, if any.
    """

    def __init__(
        self, name: str, fn_name: str, fn: Callable[..., Any], validation_errors: list[str]
    ) -> None:
        self.name = name
        self.fn_name = fn_name
        self.fn = fn
        self.validation_errors = validation_errors

    def __repr__(self) -> str:
        return f"_Component({self.name!r}, {self.fn!r}, {self.validation_errors!r})"

    @property
    def description(self) -> str:
        """The first sentence of its docstring, read on first access, which takes a while."""
        from torchx.specs._docstrings import get_fn_docstring

        return get_fn_docstring(self.fn)[0]


class ComponentsFinder(abc.ABC):
    """Finds components in one place."""

    @abc.abstractmethod
    def find(self, validators: "list[ComponentFunctionValidator] | None") -> list[_Component]:
        """Returns all components, also those with validation errors."""


def module_relname(module: ModuleType, relative_to: ModuleType) -> str:
    """Returns the name of a module relative to another one; ``""`` for itself.

    Raises:
        ValueError: if it is not a submodule.
    """
    name, base = module.__name__, relative_to.__name__
    if name == base:
        return ""
    if not name.startswith(f"{base}."):
        msg = f"`{name}` is not a submodule of `{base}`"
        raise ValueError(msg)
    return name.removeprefix(f"{base}.")


def is_package(module: ModuleType) -> bool:
    """Returns True if the module can have submodules."""
    return hasattr(module, "__path__")


def is_namespace_package(module: ModuleType) -> bool:
    """Returns True if the module is a package without a file of its own."""
    return is_package(module) and getattr(module, "__file__", None) is None


class ModuleComponentsFinder(ComponentsFinder):
    """Finds the functions in a module and its submodules.

    Args:
        group: prefix of the components' names.
    """

    def __init__(self, module: str | ModuleType, group: str) -> None:
        self.base_module = importlib.import_module(module) if isinstance(module, str) else module
        self.group = group

    def find(self, validators: "list[ComponentFunctionValidator] | None") -> list[_Component]:
        """Returns the components; functions that are only imported have a validation error."""
        found = []
        for module in self.modules():
            found += self._in_module(module, validators)
        return found

    def modules(self) -> Iterator[ModuleType]:
        """Yields the module and its submodules, each imported when it is reached."""
        return self._modules(self.base_module)

    def _modules(self, module: ModuleType) -> Iterator[ModuleType]:
        if not is_namespace_package(module):
            yield module
        if not is_package(module):
            return
        import pkgutil

        for info in pkgutil.iter_modules(module.__path__, f"{module.__name__}."):
            try:
                child = _import_plugin(info.name)
            except Exception as err:  # noqa: BLE001 - any code may run at import
                logger.warning(
                    "components of `%s` are left out, it cannot be imported: %s: %s",
                    info.name,
                    type(err).__name__,
                    err,
                )
                continue
            yield from self._modules(child)

    def _in_module(
        self, module: ModuleType, validators: "list[ComponentFunctionValidator] | None"
    ) -> list[_Component]:
        relative = module_relname(module, self.base_module)
        return [
            _component(
                ".".join(part for part in (self.group, relative, name) if part),
                name,
                fn,
                os.path.abspath(str(module.__file__)),
                validators,
            )
            for name, fn in vars(module).items()
            if isinstance(fn, FunctionType)
        ]


def _import_plugin(name: str) -> ModuleType:
    """Imports a module as foreign code, which is slower and not needed for our own modules."""
    if name.partition(".")[0] == "torchx":
        return importlib.import_module(name)
    from torchx._startup.foreign_code import importing_plugin

    with importing_plugin():
        return importlib.import_module(name)


def _component(
    name: str,
    fn_name: str,
    fn: Callable[..., Any],
    path: str,
    validators: "list[ComponentFunctionValidator] | None",
) -> _Component:
    return _Component(name, fn_name, fn, problems_of(path, fn_name, validators))


def problems_of(
    path: str, fn_name: str, validators: "list[ComponentFunctionValidator] | None"
) -> list[str]:
    """Returns the problems of a component in a file. Built-in ones need no check."""
    from torchx.specs.file_linter import validate

    return [message.description for message in validate(path, fn_name, validators)]


class Registration:
    """An entry point of the group: a module, and the prefix of its components' names."""

    def __init__(self, key: str, load: Callable[..., Any]) -> None:
        self._key = key
        self._load = load
        self._prefix = "" if key.startswith("_") else key

    def find(self, validators: "list[ComponentFunctionValidator] | None") -> list[_Component]:
        """Returns all components; none, with a warning, if the module cannot be imported."""
        try:
            base = self._base()
        except Exception as err:  # noqa: BLE001 - any code may run at import
            self._left_out(err)
            return []
        return ModuleComponentsFinder(base, self._prefix).find(validators)

    def find_one(
        self, name: str, validators: "list[ComponentFunctionValidator] | None"
    ) -> _Component | None:
        """Returns the component of that name if it is here; imports only the modules it is in.

        Raises:
            ComponentNotFoundException: if the module it would be in cannot be imported. Without a
            prefix any name might be here, so only a warning is logged. AssertionError: if the entry
            point does not name a module, likewise.
        """
        rest = name
        if self._prefix:
            if not name.startswith(f"{self._prefix}."):
                return None
            rest = name.removeprefix(f"{self._prefix}.")
        *path, fn_name = rest.split(".")
        if not all(part.isidentifier() for part in (*path, fn_name)):
            return None
        module = self._descend(name, path)
        fn = vars(module).get(fn_name) if module is not None else None
        if not isinstance(fn, FunctionType):
            return None
        assert module is not None
        return _component(name, fn_name, fn, os.path.abspath(str(module.__file__)), validators)

    def _descend(self, name: str, path: list[str]) -> ModuleType | None:
        try:
            module = self._base()
        except Exception as err:
            if not self._prefix:
                self._left_out(err)
                return None
            if isinstance(err, AssertionError):
                raise
            raise self._unreachable(name, err) from err
        try:
            for part in path:
                full = f"{module.__name__}.{part}"
                if not is_package(module) or not module_exists(full):
                    return None
                module = _import_plugin(full)
                if is_namespace_package(module):
                    return None
        except Exception as err:
            raise self._unreachable(name, err) from err
        return None if is_namespace_package(module) else module

    def _unreachable(self, name: str, err: Exception) -> ComponentNotFoundException:
        msg = (
            f"Component `{name}` may be in {self._load}, which cannot be imported:"
            f" {type(err).__name__}: {err}"
        )
        return ComponentNotFoundException(msg)

    def _left_out(self, err: Exception) -> None:
        logger.warning(
            "components of %s are left out, it cannot be imported: %s: %s",
            self._load,
            type(err).__name__,
            err,
        )

    def _base(self) -> ModuleType:
        from torchx._startup.foreign_code import importing_plugin

        with importing_plugin():
            return component_module(self._key, self._load())


def component_module(key: str, made: object) -> ModuleType:
    """Returns the module of an entry point for components, given as module or name.

    Raises:
        AssertionError: if it is something else. Errors while importing it propagate.
    """
    assert isinstance(made, (str, ModuleType)), (
        f"entry point `{key}` of `{_GROUP}` must be a module or its name, got {type(made)}"
    )
    return importlib.import_module(made) if isinstance(made, str) else made


def registrations() -> list[Registration]:
    from torchx.util.entrypoints import load_group

    return [Registration(key, load) for key, load in load_group(_GROUP).items()]


def module_exists(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False
