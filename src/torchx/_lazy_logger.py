"""Loggers that import ``logging`` when something is logged: most commands log nothing."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger
else:

    class Logger:
        """Stands for the logger of a name, and has all its methods."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            import logging

            return getattr(logging.getLogger(self._name), attribute)


def get_logger(name: str) -> Logger:
    """The logger of that name."""
    return Logger(name)
