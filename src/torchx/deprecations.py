"""Warnings about names and functions that will go."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])


def deprecated_module(old_import: str, new_import: str, *, stacklevel: int = 3) -> None:
    """Warns that a module has moved. Call it at the top of the old one."""
    warnings.warn(
        f"[Deprecated] {old_import} has moved to {new_import} and will be removed in a future"
        f" release.\n- from {old_import} import ...\n+ from {new_import} import ...",
        UserWarning,
        stacklevel=stacklevel,
    )


def deprecated(*, replacement: str | None = None) -> Callable[[T], T]:
    """Makes a function or class warn each time that it is called.

    A class stays a class: it warns when it is instantiated.

    Args:
        replacement: what to use instead, as the user would write it; ``None`` if there is nothing.
    """

    def decorate(target: T) -> T:
        hint = f" -- use {replacement} instead." if replacement else "."
        message = f"[Deprecated] {target.__qualname__} is deprecated{hint}"
        if isinstance(target, type):
            original = target.__init__  # type: ignore[misc]  # of the class itself, on purpose

            @wraps(original)
            def init(self: object, *args: Any, **kwargs: Any) -> None:
                warnings.warn(message, UserWarning, stacklevel=2)
                if original is not object.__init__:  # which takes none
                    original(self, *args, **kwargs)

            target.__init__ = init  # type: ignore[misc]  # the class warns, and stays a class
            return target

        @wraps(target)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(message, UserWarning, stacklevel=2)
            return target(*args, **kwargs)

        return wrapper  # type: ignore[return-value]  # has the signature of the target

    return decorate
