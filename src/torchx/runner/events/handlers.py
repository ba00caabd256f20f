"""Where events go."""

import logging
from collections.abc import Callable

_BUILTIN_HANDLERS: dict[str, Callable[[], logging.Handler]] = {
    "console": logging.StreamHandler,
    "null": logging.NullHandler,
}


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """A new handler for a destination: an installed plugin's, else ``console`` or ``null``.

    Raises:
        KeyError: for a destination that does not exist.
    """
    from torchx.util import entrypoints

    make = entrypoints.load_group("torchx.event_handlers").get(destination)
    if make is None:
        make = _BUILTIN_HANDLERS[destination]
    handler: logging.Handler = make()
    return handler
