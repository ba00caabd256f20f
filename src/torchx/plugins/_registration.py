"""Decorators that mark functions as plugins. Nothing is stored: discovery finds the marks."""

import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from torchx._resource_tags import IS_FRACTIONAL_TAG, RESOURCE_NAME_TAG
from torchx.errors import InvalidInput
from torchx.plugins._types import PluginType

if TYPE_CHECKING:
    from torchx.specs import Resource

    Fractionals = Callable[[Resource], Mapping[float, str]] | Mapping[float, str]

F = TypeVar("F", bound=Callable[..., Any])

NAMED_RESOURCES_ATTR = "NAMED_RESOURCES"
"""Module attribute that maps names to the factories of the module's named resources."""

WHOLE = 1.0
HALF = 0.5
QUARTER = 0.25
EIGHTH = 0.125
SIXTEENTH = 0.0625

_MB_PER_GIB = 1024


class resource_tags:
    """Keys of the tags that registered named resources carry."""

    RESOURCE_NAME = RESOURCE_NAME_TAG
    IS_FRACTIONAL = IS_FRACTIONAL_TAG


class register:
    """Marks a callable as a plugin and returns it as it is.

    >>> @register.tracker(name="acme")
    ... def create(config: str | None) -> object: ...
    >>> create._plugin_name
    'acme'

    Args:
        name: what users write; the name of the callable for ``None``.

    Raises:
        TypeError: for a decorator that is written without parentheses.
    """

    def __init__(self, type: PluginType, name: str | None = None) -> None:
        if not isinstance(type, PluginType):
            msg = (
                f"a kind of plugin is one of PluginType, given: {type!r}; write"
                " `@register.scheduler()`, or the decorator of another kind"
            )
            raise TypeError(msg)
        _check_name(name, type)
        self._type = type
        self._name = name

    def __call__(self, fn: F) -> F:
        return mark(fn, self._type, self._name or fn.__name__)

    @classmethod
    def scheduler(cls, name: str | None = None) -> "register":
        """For a factory ``(session_name, **kwargs) -> Scheduler``."""
        return cls(PluginType.SCHEDULER, name)

    @classmethod
    def tracker(cls, name: str | None = None) -> "register":
        """For a factory ``(config: str | None) -> TrackerBase``."""
        return cls(PluginType.TRACKER, name)

    @classmethod
    def event_handler(cls, name: str | None = None) -> "register":
        """For a factory ``() -> logging.Handler``; the name is the destination of events."""
        return cls(PluginType.EVENT_HANDLER, name)

    @staticmethod
    def named_resource(
        name: str | None = None,
        aliases: list[str] | None = None,
        fractionals: "Fractionals | None" = None,
    ) -> "Callable[[Callable[..., Resource]], Callable[..., Resource]]":
        """For a factory ``() -> Resource``, or ``(fractional: float = WHOLE) -> Resource``.

        Args:
            aliases: more names for the whole resource.
            fractionals: fraction → suffix of its name, or what makes that from the whole resource
                (``powers_of_two_gpus``, ``halve_mem_down_to``). Aliases get no fractions.

        Raises:
            TypeError: for a decorator that is written without parentheses.
            ValueError: (when the module is imported) for a name that the module has registered
                already, or a resource that cannot be divided like that.
            AttributeError: (likewise) if the module has an attribute of a name to be added.
        """

        _check_name(name, PluginType.NAMED_RESOURCE)

        def decorate(fn: "Callable[..., Resource]") -> "Callable[..., Resource]":
            return _register_resource(fn, name or fn.__name__, aliases or [], fractionals)

        return decorate


def mark(fn: F, plugin_type: PluginType, name: str) -> F:
    """Sets the attributes by which discovery knows a plugin."""
    fn._plugin_type = plugin_type  # type: ignore[attr-defined]  # any callable may carry them
    fn._plugin_name = name  # type: ignore[attr-defined]  # see above
    return fn


def _check_name(name: object, plugin_type: PluginType) -> None:
    """Without parentheses the function stands where the name does, and would be lost."""
    if name is not None and not isinstance(name, str):
        msg = (
            f"the name of a plugin is a str, given: {name!r}; write"
            f" `@register.{plugin_type.label}()`, with the parentheses"
        )
        raise TypeError(msg)


def _register_resource(
    fn: "Callable[..., Resource]",
    name: str,
    aliases: list[str],
    fractionals: "Fractionals | None",
) -> "Callable[..., Resource]":
    module = sys.modules[fn.__module__]

    @functools.wraps(fn)
    def base(*args: Any, **kwargs: Any) -> "Resource":
        return _tag(fn(*args, **kwargs), name, fractional=False)

    _add(module, name, base, attribute=name if name != fn.__name__ else None)
    for alias in aliases:
        made = _derive(fn, alias, base_name=name, make=lambda: base())
        made._plugin_is_alias = True  # type: ignore[attr-defined]  # read by diagnostics
        _add(module, alias, made, attribute=alias)
    for fraction, suffix in _fractions(fn, fractionals).items():
        full = f"{name}_{suffix}"
        made = _derive(fn, full, base_name=name, make=_fraction_of(fn, fraction, full))
        _add(module, full, made, attribute=full)
    return base


def _fraction_of(
    fn: "Callable[..., Resource]", fraction: float, name: str
) -> "Callable[[], Resource]":
    return lambda: _tag(fn(fraction), name, fractional=fraction < WHOLE)


def _derive(
    fn: "Callable[..., Resource]", name: str, base_name: str, make: "Callable[[], Resource]"
) -> "Callable[[], Resource]":
    def factory() -> "Resource":
        return make()

    factory.__name__ = factory.__qualname__ = name
    factory.__module__ = fn.__module__
    factory.__doc__ = fn.__doc__
    factory._plugin_base_name = base_name  # type: ignore[attr-defined]  # read by diagnostics
    return factory


def _add(module: Any, name: str, factory: "Callable[..., Resource]", attribute: str | None) -> None:
    found = vars(module).setdefault(NAMED_RESOURCES_ATTR, {})
    if name in found:
        msg = (
            f"duplicate named resource `{name}` in module `{module.__name__}`:"
            " names and aliases must differ within a module"
        )
        raise InvalidInput(msg)
    if attribute is not None and hasattr(module, attribute):
        msg = (
            f"module `{module.__name__}` has an attribute `{attribute}` already, which the named"
            f" resource `{attribute}` would replace: rename one of them"
        )
        raise AttributeError(msg)
    found[name] = mark(factory, PluginType.NAMED_RESOURCE, name)
    if attribute is not None:
        setattr(module, attribute, factory)


def _tag(resource: "Resource", name: str, *, fractional: bool) -> "Resource":
    resource.tags[RESOURCE_NAME_TAG] = name
    resource.tags[IS_FRACTIONAL_TAG] = fractional
    return resource


def _fractions(
    fn: "Callable[..., Resource]", fractionals: "Fractionals | None"
) -> Mapping[float, str]:
    if not fractionals:
        return {}
    return fractionals(fn()) if callable(fractionals) else fractionals


def powers_of_two_gpus(resource: "Resource") -> dict[float, str]:
    """Fractions with half the GPUs of the one before, named by their number of GPUs.

    >>> from torchx.specs import Resource
    >>> powers_of_two_gpus(Resource(cpu=8, gpu=4, memMB=1024))
    {1.0: '4', 0.5: '2', 0.25: '1'}

    Raises:
        ValueError: if the number of GPUs is no power of two.
    """
    gpus = resource.gpu
    if gpus <= 0 or gpus & (gpus - 1):
        msg = f"the number of GPUs must be a power of two to be halved, given: {gpus}"
        raise InvalidInput(msg)
    return _halve(gpus, 1)


def halve_mem_down_to(*, minGiB: int) -> "Callable[[Resource], dict[float, str]]":
    """Fractions with half the memory of the one before, named by their GiB, down to ``minGiB``.

    >>> from torchx.specs import Resource
    >>> halve_mem_down_to(minGiB=16)(Resource(cpu=8, gpu=0, memMB=64 * 1024))
    {1.0: '64', 0.5: '32', 0.25: '16'}

    Raises:
        ValueError: (from the result) if memory is not in whole GiB all the way down.
    """

    def halve(resource: "Resource") -> dict[float, str]:
        mem = resource.memMB
        if mem <= 0 or mem % _MB_PER_GIB:
            msg = f"memMB must be a positive multiple of {_MB_PER_GIB} to be halved, given: {mem}"
            raise InvalidInput(msg)
        gib = mem // _MB_PER_GIB
        odd_part = gib // (gib & -gib)
        if minGiB < odd_part:
            msg = (
                f"{gib} GiB cannot be halved down to {minGiB} GiB in whole GiB:"
                f" minGiB must be at least {odd_part}"
            )
            raise InvalidInput(msg)
        return _halve(gib, minGiB)

    return halve


def _halve(amount: int, least: int) -> dict[float, str]:
    fractions = {}
    fraction = WHOLE
    while amount >= least and amount > 0:
        fractions[fraction] = str(amount)
        if amount % 2:
            break
        amount //= 2
        fraction /= 2
    return fractions
