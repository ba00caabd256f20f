"""Types of the registry: kinds of plugins, their sources, and registration errors."""

from dataclasses import dataclass
from enum import Enum, IntFlag


class PluginType(str, Enum):
    """Kinds of plugins; the value is the entry-point group of the kind."""

    SCHEDULER = "torchx.schedulers"
    NAMED_RESOURCE = "torchx.named_resources"
    TRACKER = "torchx.tracker"
    EVENT_HANDLER = "torchx.event_handlers"

    @property
    def label(self) -> str:
        """The name in lower case, as diagnostics show it."""
        return self.name.lower()


class PluginSource(IntFlag):
    """The places where plugins are searched; the flags combine."""

    NONE = 0
    NAMESPACE_PKG = 1
    """Modules below the namespace package ``torchx_plugins``."""
    ENTRYPOINT = 2
    """Entry points of installed distributions."""


@dataclass(frozen=True)
class RegistrationError:
    """The reason why a plugin, or a module that may hold plugins, was left out.

    Args:
        module: full name of the module, or of the namespace that could not be searched.
        name: of the plugin; ``None`` if the failure is the module's.
        plugin_type: ``PluginType.label`` of what the plugin is; ``None`` if that is not known.
    """

    module: str
    error: str
    name: str | None = None
    plugin_type: str | None = None


def describe_error(err: BaseException) -> str:
    """``Type: message``."""
    return f"{type(err).__name__}: {err}"
