"""The registry of named resources."""

import os
from collections.abc import Callable, Iterator, KeysView, Mapping

from torchx._resource_tags import RESOURCE_NAME_TAG
from torchx._words import did_you_mean
from torchx.errors import UnknownName
from torchx.settings import ENV_TORCHX_CUSTOM_NAMED_RESOURCES
from torchx.specs._resource import NULL_RESOURCE, Resource

ResourceFactory = Callable[[], Resource]


class _NamedResourcesLibrary:
    """Named resources from all sources, loaded on first use; later sources win."""

    def __init__(self) -> None:
        self._factories: dict[str, ResourceFactory] | None = None
        self._loading = False

    def _load(self) -> dict[str, ResourceFactory]:
        found = self._factories
        if found is not None:
            return found
        from torchx._startup.plugin_lookup import discovery_lock

        with discovery_lock:
            if self._factories is None:
                if self._loading:
                    msg = (
                        "re-entrant named-resource lookup: a module that provides named resources"
                        " looks one up while it is imported; do so inside its factories"
                    )
                    raise RuntimeError(msg)
                self._loading = True
                try:
                    self._factories = _discover()
                finally:
                    self._loading = False
            return self._factories

    def reset(self) -> None:
        """Clears the cache; the next access searches again."""
        from torchx._startup.plugin_lookup import discovery_lock

        with discovery_lock:
            self._factories = None

    def _match(self, name: str) -> list[str]:
        factories = self._load()
        if name in factories:
            return [name]
        folded = name.casefold()
        return sorted(known for known in factories if known.casefold() == folded)

    def find(self, name: str) -> Resource:
        """Returns the resource of that name, a new object each time.

        Raises:
            UnknownName: (a ``KeyError``) if there is none, or if only the case differs from more
                than one.
        """
        matches = self._match(name)
        if not matches:
            msg = f"No named resource found for `{name}`. {self._hint(name)}"
            raise UnknownName(msg)
        if len(matches) > 1:
            msg = (
                f"`{name}` matches more than one registered named resource, ignoring case:"
                f" {matches}. Use one of those names exactly."
            )
            raise UnknownName(msg)
        return self._make(matches[0])

    def _make(self, name: str) -> Resource:
        from torchx.util.entrypoints import check_loads

        factory = self._load()[name]
        check_loads(factory, "named resource")
        resource = factory()
        if resource is not NULL_RESOURCE:
            resource.tags.setdefault(RESOURCE_NAME_TAG, name)
        return resource

    def _hint(self, name: str) -> str:
        names = list(self._load())
        return did_you_mean(name, names).lstrip() or f"Registered named resources: {names}"

    def __getitem__(self, name: str) -> Resource:
        _warn_subscript(name)
        return self.find(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._match(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def keys(self) -> KeysView[str]:
        """Returns all names."""
        return self._load().keys()

    def items(self) -> Iterator[tuple[str, Resource]]:
        """Yields all names with their resources, each created when it is reached."""
        for name in list(self._load()):
            yield name, self._make(name)


def _warn_subscript(name: str) -> None:
    import warnings

    warnings.warn(
        f"use `torchx.specs.resource(h={name!r})` to look a named resource up",
        FutureWarning,
        stacklevel=3,
    )


def _discover() -> dict[str, ResourceFactory]:
    from torchx.specs import named_resources_aws, named_resources_generic

    found: dict[str, ResourceFactory] = {}
    found.update(named_resources_generic.NAMED_RESOURCES)
    found.update(named_resources_aws.NAMED_RESOURCES)
    found.update(_custom_module())
    found.update(_plugins())
    found.update({"NULL": lambda: NULL_RESOURCE, "MISSING": lambda: NULL_RESOURCE})
    return found


def _custom_module() -> Mapping[str, ResourceFactory]:
    module = os.environ.get(ENV_TORCHX_CUSTOM_NAMED_RESOURCES)
    if not module:
        return {}
    from torchx.util.modules import import_attr

    default: Mapping[str, ResourceFactory] = {}
    found: Mapping[str, ResourceFactory] = import_attr(module, "NAMED_RESOURCES", default)
    return found


def _plugins() -> Mapping[str, ResourceFactory]:
    from torchx._startup.plugin_lookup import any_plugins

    if not any_plugins("NAMED_RESOURCE"):
        return {}
    from torchx.plugins import PluginType, find

    return find(PluginType.NAMED_RESOURCE)


named_resources = _NamedResourcesLibrary()
"""All named resources; use ``resource(h=name)`` to look one up."""


def get_named_resources(res: str) -> Resource:
    """Deprecated: use ``resource(h=...)``."""
    _warn_subscript(res)
    return named_resources.find(res)


def resource(
    cpu: int | None = None,
    gpu: int | None = None,
    memMB: int | None = None,
    h: str | None = None,
) -> Resource:
    """Returns a resource by name, or by numbers (defaults: 2 CPUs, no GPU, 1024 MB).

    >>> resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})

    Args:
        h: name; the numbers are ignored if it is given.

    Raises:
        KeyError: if no resource has that name.
    """
    if h:
        return named_resources.find(h)
    return Resource(cpu=cpu or 2, gpu=gpu or 0, memMB=memMB or 1024)
