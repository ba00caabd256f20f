"""Finds components: registered ones, built-in ones, and those in files and modules."""

import abc
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import configure_now, get_logger
from torchx._words import did_you_mean
from torchx.errors import ComponentNotFoundException as ComponentNotFoundException
from torchx.errors import ComponentValidationException as ComponentValidationException

if TYPE_CHECKING:
    from torchx.specs.file_linter import ComponentFunctionValidator

logger = get_logger(__name__)

_GROUP = "torchx.components"
_BUILTINS = "torchx.components"


class _Component:
    """A component that was found.

    Args:
        name: what it was found by.
        fn_name: name in its module.
        validation_errors: what is wrong with it, if anything.
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
        """What its docstring says first; read when it is asked for, which takes a while."""
        from torchx.specs._docstrings import get_fn_docstring

        return get_fn_docstring(self.fn)[0]


class ComponentsFinder(abc.ABC):
    """Finds components in one place."""

    @abc.abstractmethod
    def find(self, validators: "list[ComponentFunctionValidator] | None") -> list[_Component]:
        """All of them, also those with validation errors."""


def module_relname(module: ModuleType, relative_to: ModuleType) -> str:
    """Name of a module below another one; ``""`` for itself.

    Raises:
        ValueError: if it is not below it.
    """
    name, base = module.__name__, relative_to.__name__
    if name == base:
        return ""
    if not name.startswith(f"{base}."):
        msg = f"`{name}` is not a submodule of `{base}`"
        raise ValueError(msg)
    return name.removeprefix(f"{base}.")


def is_package(module: ModuleType) -> bool:
    """Whether the module can hold others."""
    return hasattr(module, "__path__")


def is_namespace_package(module: ModuleType) -> bool:
    """Whether the module is a package without a file of its own."""
    return is_package(module) and getattr(module, "__file__", None) is None


class ModuleComponentsFinder(ComponentsFinder):
    """Finds the functions in a module and all that is below it.

    Args:
        group: put in front of the components' names.
    """

    def __init__(self, module: str | ModuleType, group: str) -> None:
        self.base_module = importlib.import_module(module) if isinstance(module, str) else module
        self.group = group

    def find(self, validators: "list[ComponentFunctionValidator] | None") -> list[_Component]:
        """Functions that are only imported are found with a validation error."""
        found = []
        for module in self.modules():
            found += self._in_module(module, validators)
        return found

    def modules(self) -> Iterator[ModuleType]:
        """The module and all below it, each imported when it is its turn."""
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
    """Imports a module as foreign code, which takes time that our own modules need not cost."""
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
    return _Component(name, fn_name, fn, _problems(path, fn_name, validators))


def _problems(
    path: str, fn_name: str, validators: "list[ComponentFunctionValidator] | None"
) -> list[str]:
    """What is wrong with a component of a file. The built-in ones need no check, nor its import."""
    from torchx.specs.file_linter import validate

    return [message.description for message in validate(path, fn_name, validators)]


class CustomComponentsFinder(ComponentsFinder):
    """Finds one component by ``PATH:NAME``; the path may be a file or a module."""

    def __init__(self, filepath: str, function_name: str) -> None:
        self._path = filepath
        self._name = function_name

    def find(self, validators: "list[ComponentFunctionValidator] | None") -> list[_Component]:
        """The component.

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
        errors = _problems(source, self._name, validators)
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
        """The module, and the path by which its source can be read."""
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


class _Registration:
    """One entry point of the group: a module, and what its components' names begin with."""

    def __init__(self, key: str, load: Callable[..., Any]) -> None:
        self._key = key
        self._load = load
        self._prefix = "" if key.startswith("_") else key

    def find(self, validators: "list[ComponentFunctionValidator] | None") -> list[_Component]:
        """All components; none, and a warning, if the module cannot be imported."""
        try:
            base = self._base()
        except Exception as err:  # noqa: BLE001 - any code may run at import
            self._left_out(err)
            return []
        return ModuleComponentsFinder(base, self._prefix).find(validators)

    def find_one(
        self, name: str, validators: "list[ComponentFunctionValidator] | None"
    ) -> _Component | None:
        """The component of that name if it is here; imports no module but those it is in.

        Raises:
            ComponentNotFoundException: if the module it would be in cannot be imported. Without a
                prefix any name might be here, so that there is a warning instead.
            AssertionError: if the entry point does not name a module, likewise.
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
                if not is_package(module) or not _exists(full):
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
    """The module that an entry point for components gives, itself or by its name.

    Raises:
        AssertionError: if it gives something else. Errors while importing it propagate.
    """
    assert isinstance(made, (str, ModuleType)), (
        f"entry point `{key}` of `{_GROUP}` must be a module or its name, got {type(made)}"
    )
    return importlib.import_module(made) if isinstance(made, str) else made


def _registrations() -> list[_Registration]:
    from torchx.util.entrypoints import load_group

    return [_Registration(key, load) for key, load in load_group(_GROUP).items()]


def _find_components(
    validators: "list[ComponentFunctionValidator] | None",
) -> dict[str, _Component]:
    """The built-in components, and those of installed packages, whose names win."""
    found = _find_builtins(validators)
    for registration in _registrations():
        found.update((component.name, component) for component in registration.find(validators))
    return found


def _find_builtins(
    validators: "list[ComponentFunctionValidator] | None",
) -> dict[str, _Component]:
    finder = ModuleComponentsFinder(_BUILTINS, "")
    return {component.name: component for component in finder.find(validators)}


# clients set it to None to have components looked for again
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
    """All registered components without validation errors, by name.

    Components of installed packages stand beside the built-in ones, and win where both have a
    name; the built-in one is then found as ``torchx.components.<name>``.
    """
    found = _all_components(validators)
    return {name: c for name, c in found.items() if not c.validation_errors}


def get_component(
    name: str, validators: "list[ComponentFunctionValidator] | None" = None
) -> _Component:
    """A component by its registered name, or as ``file.py:fn``, ``pkg.mod:fn`` or ``pkg.mod.fn``.

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
    """A registered component, else a built-in one."""
    for registration in reversed(_registrations()):  # the last one wins, as in the whole list
        component = registration.find_one(name, validators)
        if component is not None:
            return component
    return _builtin(name, validators) or _find_builtins(validators).get(name)


def _builtin(name: str, validators: "list[ComponentFunctionValidator] | None") -> _Component | None:
    """A component of ours, which needs no check."""
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
    if dot and all(part.isidentifier() for part in name.split(".")) and _exists(module):
        component = CustomComponentsFinder(module, fn_name).find(validators)[0]
        component.name = name
        return component
    if name.endswith(".py") or "/" in name or os.path.isfile(name):
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


def _exists(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def get_builtin_source(
    name: str, validators: "list[ComponentFunctionValidator] | None" = None
) -> str:
    """Source of a component with the imports it needs: a component file of its own."""
    import ast
    import inspect

    component = get_component(name, validators)
    fn = inspect.unwrap(component.fn)
    module = inspect.getmodule(fn)
    assert module is not None
    source = inspect.getsource(module)
    imports = [
        ast.get_source_segment(source, node) or ""
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    helpers = _helpers(source, inspect.getsource(fn), component.fn_name)
    return "\n".join([*imports, "\n", *helpers, inspect.getsource(fn)])


def _helpers(module_source: str, fn_source: str, fn_name: str) -> list[str]:
    """Source of the private functions and constants of the module that the function uses."""
    import ast
    import re

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
