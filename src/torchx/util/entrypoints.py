"""Finds plugins that installed packages advertise as entry points, at little cost."""

from torchx._startup.entry_points import metadata as metadata
from torchx._startup.lazy_logger import get_logger

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

logger = get_logger(__name__)

_UNSET = object()


def _find(group: str) -> "dict[str, Any]":
    found: dict[str, Any] = {}
    for point in metadata.entry_points(group=group):
        if getattr(point, "group", group) != group:  # a stand-in from the tests of a plugin
            continue
        earlier = found.get(point.name)
        if earlier is not None and earlier.value != point.value:
            logger.warning(
                "entry point `%s` of group `%s` is registered twice: `%s` (%s) is used, not `%s`"
                " (%s)",
                point.name,
                group,
                point.value,
                _distribution(point) or "unknown distribution",
                earlier.value,
                _distribution(earlier) or "unknown distribution",
            )
        found[point.name] = point
    return found


def load(group: str, name: str, default: "Any" = _UNSET) -> "Any":
    """Loads one entry point.

    Raises:
        KeyError: if there is none and no default was given. Errors while loading it propagate.
    """
    point = _find(group).get(name)
    if point is not None:
        from torchx._startup.foreign_code import importing_plugin

        with importing_plugin():
            return point.load()
    if default is _UNSET:
        msg = f"entrypoint {group}.{name} not found"
        raise KeyError(msg)
    return default


def load_group(group: str, default: "Any" = None) -> "dict[str, Callable[..., Any]]":
    """Deferred loaders of the entry points of a group, by name; nothing is imported yet.

    Calling a loader imports the target and calls it with the same arguments. A target that is a
    module is returned instead.

    Args:
        default: returned in place of an empty dict, where given.
    """
    found: dict[str, Callable[..., Any]] = {
        name: EntryPointLoader(point) for name, point in _find(group).items()
    }
    if not found and default is not None:
        return default  # type: ignore[no-any-return]  # whatever the caller gave
    return found


class EntryPointLoader:
    """Imports the target of an entry point when it is called, and calls it."""

    def __init__(self, point: "Any") -> None:
        self._point = point

    def __repr__(self) -> str:
        return f"<entry point {self._point.name} = {self._point.value}>"

    @property
    def module(self) -> str:
        """Name of the target's module."""
        return str(self._point.value.partition(":")[0].strip())

    @property
    def distribution(self) -> str | None:
        """Name and version of the distribution that has the entry point, if that is known."""
        return _distribution(self._point)

    @property
    def origin(self) -> str:
        """The entry point and its distribution, for messages."""
        return f"{self!r} of {self.distribution or 'an unknown distribution'}"

    def target(self) -> "Any":
        """The object that the entry point names; imports it."""
        from torchx._startup.foreign_code import importing_plugin

        with importing_plugin():
            return self._point.load()

    def failure(self, kind: str, err: Exception) -> str:
        """Returns the message for a target, a plugin of that kind, that cannot be imported."""
        text = f"the {kind} of {self.origin} cannot be loaded: {type(err).__name__}: {err}"
        if isinstance(err, ImportError) and f"{err.name}.".startswith("torchx."):
            text += "; it was made for another release of torchx: install one made for this"
        return text

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        target = self.target()
        return target if ":" not in self._point.value else target(*args, **kwargs)


def check_loads(factory: "Callable[..., Any]", kind: str) -> None:
    """Imports the target of a factory, if the factory is that of an entry point.

    Raises:
        PluginNotLoaded: if that fails; names the entry point, which the error itself does not.
    """
    if not isinstance(factory, EntryPointLoader):
        return
    try:
        factory.target()
    except Exception as err:
        from torchx.errors import PluginNotLoaded

        name = getattr(err, "name", None)
        raise PluginNotLoaded(factory.failure(kind, err), name=name) from err


def _distribution(point: "Any") -> str | None:
    dist = getattr(point, "dist", None)
    return f"{dist.name} {dist.version}" if dist is not None else None
