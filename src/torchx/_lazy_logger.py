"""Loggers that import ``logging`` when something is logged: most commands log nothing."""

TYPE_CHECKING = False  # the name alone tells type checkers
if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Logger
else:

    class Logger:
        """Stands for the logger of a name, and has all its methods."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            before_foreign_code()
            import logging

            return getattr(logging.getLogger(self._name), attribute)


def get_logger(name: str) -> Logger:
    """The logger of that name."""
    return Logger(name)


_pending: "list[Callable[[], None]]" = []


def defer_configuration(configure: "Callable[[], None]") -> None:
    """Has ``logging`` configured before the first record, and not before."""
    _pending[:] = [configure]


def before_foreign_code() -> None:
    """Configures ``logging`` now: plugins and component files may use it in any way."""
    if _pending:
        _pending.pop()()
