"""The handlers that events are written to."""

from typing import TYPE_CHECKING

from torchx._startup.plugin_lookup import any_plugins
from torchx.util.entrypoints import check_loads

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable


def get_logging_handler(destination: str = "null") -> "logging.Handler":
    """Returns a new handler for a destination: a plugin's, else ``console`` or ``null``.

    Raises:
        KeyError: for a destination that does not exist.
    """
    import logging

    make = _plugin(destination)
    if make is None:
        make = {"console": logging.StreamHandler, "null": logging.NullHandler}[destination]
    handler: logging.Handler = make()
    return handler


def _plugin(destination: str) -> "Callable[[], logging.Handler] | None":
    if not any_plugins("EVENT_HANDLER"):
        return None
    from torchx.plugins import PluginType, find

    make = find(PluginType.EVENT_HANDLER).get(destination)
    if make is not None:
        check_loads(make, "event handler")
    return make
