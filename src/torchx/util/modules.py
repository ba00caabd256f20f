"""Loads modules and attributes by name."""

import logging
from types import ModuleType
from typing import Any

from torchx._startup.foreign_code import importing_plugin

logger = logging.getLogger(__name__)


def load_module(path: str) -> ModuleType | Any | None:
    """The module ``a.b``, or the attribute ``a.b:c``; ``None`` if it cannot be loaded.

    A module that exists and fails is warned about.
    """
    import importlib

    name, colon, attr = path.partition(":")
    try:
        with importing_plugin():
            module = importlib.import_module(name)
            return getattr(module, attr) if colon else module
    except ModuleNotFoundError as err:
        if not _is_missing(name, err):
            logger.warning("cannot load `%s`: %s", path, err)
    except Exception as err:  # noqa: BLE001 - any code may run at import
        logger.warning("cannot load `%s`: %s: %s", path, type(err).__name__, err)
    return None


def import_attr(name: str, attr: str, default: Any) -> Any:
    """An attribute of a module; the default if the module does not exist.

    Raises:
        ModuleNotFoundError: if one of the module's own imports does not exist.
        AttributeError: if the module has no such attribute.
    """
    import importlib

    try:
        with importing_plugin():
            module = importlib.import_module(name)
    except ModuleNotFoundError as err:
        if _is_missing(name, err):
            return default
        raise
    return getattr(module, attr)


def _is_missing(name: str, err: ModuleNotFoundError) -> bool:
    """Returns True if the missing module is the named one or one of its parent packages."""
    return err.name is not None and (name == err.name or name.startswith(f"{err.name}."))
