"""Keeps code of other packages, while it is imported, from ending or garbling the command.

This is separate from ``torchx.plugins`` so that component files can be imported without it.
"""

import sys
from _thread import allocate_lock
from types import TracebackType
from typing import TYPE_CHECKING

from torchx._startup.lazy_logger import configure_now

if TYPE_CHECKING:
    from typing import TextIO


class importing_plugin:
    """Wraps an import: printed text goes to stderr, and ``sys.exit`` becomes an error.

    Results are written to stdout, where a greeting of a plugin would be read as part of them.

    >>> with importing_plugin():
    ...     raise SystemExit(4)
    Traceback (most recent call last):
    RuntimeError: it calls `sys.exit(4)` while it is imported

    Raises:
        RuntimeError: for ``SystemExit``; any other exception passes, ``KeyboardInterrupt`` too.
    """

    def __enter__(self) -> None:
        configure_now()
        _Stdout.divert()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _Stdout.restore()
        if isinstance(exc, SystemExit):
            raise self.error(f"`sys.exit({exc.code!r})`") from exc

    def error(self, call: str) -> Exception:
        """Returns the error that replaces a call that would end the process."""
        return RuntimeError(f"it calls {call} while it is imported")


class component_code(importing_plugin):
    """Wraps a call of a component: printed text goes to stderr, and ``sys.exit`` becomes an error.

    >>> with component_code("`job.py`"):  # doctest: +ELLIPSIS
    ...     raise SystemExit(4)
    Traceback (most recent call last):
    torchx.errors.ComponentValidationException: `job.py` calls `sys.exit(4)`; a component ...

    Args:
        what: the component, or its file.

    Raises:
        ComponentValidationException: for ``SystemExit``; any other exception passes.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def error(self, call: str) -> Exception:
        """Returns the error that replaces a call that would end the process."""
        from torchx.errors import ComponentValidationException

        return ComponentValidationException(
            f"{self._what} calls {call}; a component returns an `AppDef`, and raises an error"
            " if it cannot"
        )


class _Stdout:
    """Redirects ``sys.stdout``; the last thread that leaves foreign code restores it."""

    _lock = allocate_lock()
    _users = 0
    _kept: "TextIO"

    @classmethod
    def divert(cls) -> None:
        with cls._lock:
            if cls._users == 0:
                cls._kept, sys.stdout = sys.stdout, sys.stderr
            cls._users += 1

    @classmethod
    def restore(cls) -> None:
        with cls._lock:
            cls._users -= 1
            if cls._users == 0:
                sys.stdout = cls._kept
