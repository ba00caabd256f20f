"""The registry of plugins. Each kind is searched once, on first use."""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any, overload

from torchx._startup.lazy_logger import get_logger
from torchx._startup.plugin_lookup import discovery_lock
from torchx.errors import InvalidInput
from torchx.plugins._registration import NAMED_RESOURCES_ATTR
from torchx.plugins._types import PluginSource, PluginType, RegistrationError, describe_error
from torchx.settings import ENV_TORCHX_NO_ENTRYPOINTS, ENV_TORCHX_PLUGINS_SOURCE

__all__ = [
    "NAMED_RESOURCES_ATTR",
    "PluginRegistry",
    "PluginSource",
    "PluginType",
    "RegistrationError",
    "find",
    "registry",
]


logger = get_logger(__name__)
_Plugins = dict[str, Callable[..., Any]]


class PluginRegistry:
    """Plugins by kind and name.

    Args:
        plugin_sources: where to look.
    """

    def __init__(
        self,
        *,
        plugin_sources: PluginSource = PluginSource.NAMESPACE_PKG | PluginSource.ENTRYPOINT,
    ) -> None:
        self._sources = plugin_sources
        self._plugins: dict[PluginType, _Plugins] = {}
        self._errors: list[RegistrationError] = []
        self._running: set[PluginType] = set()
        self._checked = False

    def get(self, plugin_type: PluginType) -> _Plugins:
        """Returns the factories of a kind by name, always the same dict. Entry points are loaded
        when called.

        Raises:
            RuntimeError: if a plugin's module looks up its own kind while it is imported.
        """
        found = self._plugins.get(plugin_type)
        if found is not None:
            return found
        with discovery_lock:
            if plugin_type in self._plugins:
                return self._plugins[plugin_type]
            if plugin_type in self._running:
                kind = plugin_type.label.replace("_", "-")
                msg = (
                    f"re-entrant {kind} lookup: a module that provides a {kind} looks up all"
                    " of them while it is imported; do so inside its functions"
                )
                raise RuntimeError(msg)
            self._running.add(plugin_type)
            try:
                self._plugins[plugin_type] = self._discover(plugin_type)
            finally:
                self._running.discard(plugin_type)
            return self._plugins[plugin_type]

    @overload
    def info(self, plugin_type: None = None) -> dict[PluginType, _Plugins]: ...
    @overload
    def info(self, plugin_type: PluginType) -> _Plugins: ...
    def info(self, plugin_type: PluginType | None = None) -> dict[PluginType, _Plugins] | _Plugins:
        """Copies of what ``get`` returns, of one kind or of each."""
        if plugin_type is not None:
            return dict(self.get(plugin_type))
        return {kind: dict(self.get(kind)) for kind in PluginType}

    @property
    def errors(self) -> list[RegistrationError]:
        """Returns the errors found so far; starts no search."""
        return list(self._errors)

    def load_errors(self, plugin_type: PluginType | None = None) -> list[RegistrationError]:
        """Searches all kinds, or one, and returns the errors."""
        if plugin_type is None:
            for kind in PluginType:
                self.get(kind)
            return self.errors
        self.get(plugin_type)
        namespace = self._namespace_for_type(plugin_type)
        return [
            error
            for error in self._errors
            if error.plugin_type == plugin_type.label
            or error.module == namespace
            or error.module.startswith(f"{namespace}.")
        ]

    def check(self) -> list[RegistrationError]:
        """Searches all kinds, imports the target of every entry point, and returns all errors."""
        from torchx.util.entrypoints import EntryPointLoader

        with discovery_lock:
            if not self._checked:
                self._checked = True
                for kind in PluginType:
                    for name, factory in self.get(kind).items():
                        if isinstance(factory, EntryPointLoader):
                            self._check(kind, name, factory)
            return self.errors

    def _check(self, kind: PluginType, name: str, loader: Any) -> None:
        try:
            loader.target()
        except Exception as err:  # noqa: BLE001 - any code may run at import
            error = RegistrationError(loader.module, describe_error(err), name, kind.label)
            self._errors.append(error)

    def clear(self) -> None:
        """Clears the cache, here and in ``registry()``; the next call searches again."""
        with discovery_lock:
            self._plugins.clear()
            self._errors.clear()
            self._checked = False
        registry.cache_clear()

    def to_dict(self) -> dict[str, list[dict[str, Any]]]:
        """Returns all plugins and errors as plain data; searches all kinds, loads entry points."""
        from torchx.plugins._report import describe

        return describe(self)

    def __str__(self) -> str:
        from torchx.plugins._report import to_yaml

        return to_yaml(self.to_dict())

    @staticmethod
    def _namespace_for_type(plugin_type: PluginType) -> str:
        from torchx.plugins._scan import namespace_of

        return namespace_of(plugin_type)

    def _discover(self, plugin_type: PluginType) -> _Plugins:
        from torchx.plugins._scan import NamespaceScan

        found: _Plugins = {}
        if self._sources & PluginSource.NAMESPACE_PKG:
            namespace = self._namespace_for_type(plugin_type)
            found = NamespaceScan(plugin_type, namespace, self._errors).run()
        if self._sources & PluginSource.ENTRYPOINT:
            from torchx.util import entrypoints

            for name, loader in entrypoints.load_group(plugin_type.value).items():
                if name in found:
                    self._shadowed(plugin_type, name, found[name].__module__)
                found[name] = loader
        return found

    def _shadowed(self, plugin_type: PluginType, name: str, module: str) -> None:
        text = (
            f"{plugin_type.label} `{name}` is registered both by module `{module}` and by an entry"
            f" point of group `{plugin_type.value}`; the entry point wins"
        )
        logger.warning("%s", text)
        self._errors.append(RegistrationError(module, text, name, plugin_type.label))


@lru_cache(maxsize=1)
def registry() -> PluginRegistry:
    """The registry of this process.

    Raises:
        ValueError: if ``TORCHX_PLUGINS_SOURCE`` is not 0, 1, 2 or 3.
    """
    return PluginRegistry(plugin_sources=_sources_of_environment())


def find(plugin_type: PluginType) -> _Plugins:
    """Factories of one kind by name: ``registry().get(plugin_type)``."""
    return registry().get(plugin_type)


def _sources_of_environment() -> PluginSource:
    given = os.environ.get(ENV_TORCHX_PLUGINS_SOURCE)
    if not given:
        if os.environ.get(ENV_TORCHX_NO_ENTRYPOINTS) == "1":
            return PluginSource.NAMESPACE_PKG
        return PluginSource.NAMESPACE_PKG | PluginSource.ENTRYPOINT
    if given not in ("0", "1", "2", "3"):
        msg = (
            f"{ENV_TORCHX_PLUGINS_SOURCE}={given!r} is not understood: 0 finds no plugins,"
            " 1 those in the namespace package `torchx_plugins`, 2 entry points,"
            " 3 (the default) both"
        )
        raise InvalidInput(msg)
    return PluginSource(int(given))
