"""Finds marked functions in the modules below one namespace package."""

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from torchx._startup.foreign_code import importing_plugin
from torchx._startup.lazy_logger import get_logger
from torchx.plugins._equality import same
from torchx.plugins._types import PluginType, RegistrationError, describe_error

logger = get_logger(__name__)
_Marked = tuple[Callable[..., Any], PluginType, str]


class NamespaceScan:
    """A search of the namespace of one kind of plugin.

    Args:
        errors: receives an error for each plugin left out, beside a warning.
    """

    def __init__(
        self, plugin_type: PluginType, namespace: str, errors: list[RegistrationError]
    ) -> None:
        self._type = plugin_type
        self._namespace = namespace
        self._errors = errors
        self.found: dict[str, Callable[..., Any]] = {}

    def run(self) -> dict[str, Callable[..., Any]]:
        """Returns plugins by name, in the order found; empty without the namespace."""
        try:
            with importing_plugin():
                package = importlib.import_module(self._namespace)
        except ModuleNotFoundError as err:
            if not is_around(err.name, self._namespace):
                self._fail(self._namespace, err)
            return {}
        except Exception as err:  # noqa: BLE001 - any code may run at import
            self._fail(self._namespace, err)
            return {}
        try:
            self._search(package)
        except OSError as err:
            self._fail(self._namespace, err)
            return {}
        return self.found

    def _search(self, package: ModuleType) -> None:
        paths = getattr(package, "__path__", None)
        if paths is None:
            return
        seen = set()
        for info in self._children(list(paths)):
            seen.add(info.name)
            if not info.name.startswith("_"):
                self._visit(f"{package.__name__}.{info.name}", enter=info.ispkg)
        for name in _plain_folders(list(paths)):
            if name not in seen:
                seen.add(name)
                self._visit(f"{package.__name__}.{name}", enter=True)

    def _children(self, paths: list[str]) -> Iterator[pkgutil.ModuleInfo]:
        """Lists modules path by path, so that an earlier distribution precedes a later one."""
        yielded = set()
        for path in paths:
            for info in pkgutil.iter_modules([path]):
                if info.name not in yielded:
                    yielded.add(info.name)
                    yield info

    def _visit(self, fqn: str, *, enter: bool) -> None:
        try:
            with importing_plugin():
                module = importlib.import_module(fqn)
                marked = _marked(module)
        except Exception as err:  # noqa: BLE001 - any code may run at import
            self._fail(fqn, err)
            return
        self._collect(marked, fqn)
        if enter:
            self._search(module)

    def _collect(self, marked: list[_Marked], fqn: str) -> None:
        for fn, kind, name in marked:
            if kind is not self._type:
                self._misplaced(fqn, name, kind)
            elif name not in self.found:
                self.found[name] = fn
            elif same(kind, self.found[name], fn):
                logger.debug("`%s` of `%s` is registered already, as the same", name, fqn)
            else:
                self._reject(
                    fqn,
                    name,
                    kind,
                    f"`{name}` is registered already by `{self.found[name].__module__}`, with a"
                    " DIFFERENT value; the first one is kept",
                )

    def _misplaced(self, fqn: str, name: str, kind: PluginType) -> None:
        right = namespace_of(kind)
        self._reject(
            fqn,
            name,
            kind,
            f"`{name}` is a {kind.label} but is under the {self._type.label} namespace; decorate it"
            f" with @register.{self._type.label}() or move its module below `{right}`",
        )

    def _reject(self, fqn: str, name: str, kind: PluginType, text: str) -> None:
        logger.warning("plugin of module `%s` left out: %s", fqn, text)
        self._errors.append(RegistrationError(fqn, text, name, kind.label))

    def _fail(self, fqn: str, err: BaseException) -> None:
        text = describe_error(err)
        logger.warning("plugins of module `%s` left out, it cannot be imported: %s", fqn, text)
        self._errors.append(RegistrationError(fqn, text))


def _marked(module: ModuleType) -> list[_Marked]:
    """Plugins that the module defines, each once."""
    found: dict[int, _Marked] = {}
    for attribute in dir(module):
        fn = _attribute(module, attribute)
        kind = _attribute(fn, "_plugin_type")
        if not callable(fn) or not isinstance(kind, PluginType):
            continue
        if _attribute(fn, "__module__") == module.__name__:
            found.setdefault(id(fn), (fn, kind, fn._plugin_name))
    return list(found.values())


def _attribute(owner: Any, name: str) -> Any:
    """Returns an attribute; ``None`` if reading it fails, as for the proxies of some frameworks."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - any code may run in `__getattr__`
        return None


def namespace_of(plugin_type: PluginType) -> str:
    """Name of the namespace package of a kind, such as ``torchx_plugins.schedulers``."""
    return f"torchx_plugins.{plugin_type.value.removeprefix('torchx.')}"


def is_around(missing: str | None, module: str) -> bool:
    """Returns True if the missing name is that of the module or of one of its parent packages."""
    return missing is not None and (module == missing or module.startswith(f"{missing}."))


def _plain_folders(paths: list[str]) -> Iterator[str]:
    """Names of folders without ``__init__.py`` that hold modules."""
    for path in paths:
        if not os.path.isdir(path):
            continue
        for name in sorted(os.listdir(path)):
            folder = os.path.join(path, name)
            if name.startswith("_") or not name.isidentifier() or not os.path.isdir(folder):
                continue
            files = os.listdir(folder)
            if "__init__.py" not in files and any(file.endswith(".py") for file in files):
                yield name
