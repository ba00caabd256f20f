"""Loggers that import ``logging`` when something is logged: most commands log nothing.

Without them ``--help`` takes twice as long, as it loads nothing else of that size.
"""

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Logger
else:

    class Logger:
        """Stands for the logger of a name, and has all its methods."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            configure_now()
            import logging

            return getattr(logging.getLogger(self._name), attribute)


def get_logger(name: str) -> Logger:
    """The logger of that name."""
    return Logger(name)


_pending: "list[Callable[[], None]]" = []


def configure_later(configure: "Callable[[], None]") -> None:
    """Has ``logging`` configured before the first record, and not before."""
    _pending[:] = [configure]


def configure_now() -> None:
    """Configures ``logging`` now: plugins and component files may use it in any way."""
    if _pending:
        _pending.pop()()
