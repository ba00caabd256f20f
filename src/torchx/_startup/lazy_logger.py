"""Loggers that import ``logging`` only where its handlers or formatters have work to do.

Without them ``--help`` takes twice as long, because it loads nothing else of that size. A command
that logs a line or two, like ``run`` in a script, takes 2.6 ms less (of 38 ms): while ``logging``
is not imported, nothing can have changed where records go, so lines are written without it.
"""

import sys

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Logger

    Write = Callable[[int, str, str], None]
else:

    class Logger:
        """Stands in for the logger of a name, with all its methods."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            level = _LEVELS.get(attribute)
            if level is not None and _plain and "logging" not in sys.modules:
                return _Plain(self._name, attribute, level)
            configure_now()
            import logging

            return getattr(logging.getLogger(self._name), attribute)


_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
"""The levels that have a method, with the numbers of ``logging``."""

_UNSHOWN = {"extra"}
"""Arguments of these methods that plain lines do not show: they are for handlers on terminals."""


class _Plain:
    """A method that writes a line without ``logging``, unless its arguments need ``logging``."""

    def __init__(self, name: str, method: str, level: int) -> None:
        self._name = name
        self._method = method
        self._level = level

    def __call__(self, message: object, *args: object, **more: object) -> None:
        if more and more.keys() != _UNSHOWN:
            configure_now()
            import logging

            getattr(logging.getLogger(self._name), self._method)(message, *args, **more)
            return
        for write in _plain:
            write(self._level, self._method.upper(), str(message) % args if args else str(message))


def get_logger(name: str) -> Logger:
    """Returns the logger of that name."""
    return Logger(name)


_pending: "list[Callable[[], None]]" = []
_plain: "list[Write]" = []


def configure_later(configure: "Callable[[], None]", write: "Write | None" = None) -> None:
    """Registers a call that configures ``logging`` right before its first use.

    Args:
        write: writes a record of a level (number, name) as the configured ``logging`` would, or
            drops it; ``None`` if only ``logging`` can.
    """
    _pending[:] = [configure]
    _plain[:] = [] if write is None else [write]


def configure_now() -> None:
    """Configures ``logging`` now: plugins and component files may use it in any way."""
    _plain.clear()
    if _pending:
        _pending.pop()()
