"""Where events go."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def get_logging_handler(destination: str = "null") -> "logging.Handler":
    """A new handler for a destination: an installed plugin's, else ``console`` or ``null``.

    Raises:
        KeyError: for a destination that does not exist.
    """
    import logging

    from torchx._startup.plugin_lookup import plugins
    from torchx.util.entrypoints import check_loads

    make = plugins("EVENT_HANDLER").get(destination)
    if make is None:
        make = {"console": logging.StreamHandler, "null": logging.NullHandler}[destination]
    check_loads(make, "event handler")
    handler: logging.Handler = make()
    return handler
