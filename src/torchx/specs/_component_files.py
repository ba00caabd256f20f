"""Loads component files as real modules."""

import importlib
import importlib.util
import logging
import os
import re
import sys
import threading
from types import ModuleType

from torchx.util.io import read_conf_file

logger = logging.getLogger(__name__)
_lock = threading.RLock()


def load_file(path: str) -> ModuleType:
    """Loads the module of a component file; the same file gives the same module.

    A file inside a package is imported as part of it, so that relative imports work; any other file
    under its own name. The folder needed by its imports is appended to ``sys.path``.

    Raises:
        FileNotFoundError: if there is no such file. Errors while importing it propagate.
    """
    with _lock:
        if not os.path.isfile(path):
            return _load_packaged_source(path)
        absolute = os.path.realpath(path)
        loaded = _loaded(absolute)
        if loaded is not None:
            return loaded
        package, top = _package_of(absolute)
        stem = os.path.splitext(os.path.basename(absolute))[0]
        if package and stem.isidentifier():
            module = _load_in_package(absolute, package, stem, top)
            if module is not None:
                return module
        return _load_alone(absolute, stem)


def _loaded(absolute: str) -> ModuleType | None:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if (
            file
            and os.path.basename(file) == os.path.basename(absolute)
            and os.path.realpath(file) == absolute
            and module.__name__ != "__main__"
        ):
            return module
    return None


def _package_of(absolute: str) -> tuple[str, str]:
    """Returns the dotted name of a file's package, and the folder above it; ``""`` if none."""
    folder = os.path.dirname(absolute)
    parts: list[str] = []
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        name = os.path.basename(folder)
        if not name.isidentifier():
            break
        parts.insert(0, name)
        folder = os.path.dirname(folder)
    return ".".join(parts), folder


def _load_in_package(absolute: str, package: str, stem: str, top: str) -> ModuleType | None:
    """Imports a file as part of its package; ``None`` if a dependency of the package is missing."""
    with _Restore() as restore:
        if top not in sys.path:
            sys.path.append(top)
        try:
            parent = importlib.import_module(package)
        except Exception as err:  # noqa: BLE001 - any code may run at import
            logger.debug("loading `%s` on its own: package `%s`: %s", absolute, package, err)
            return None
        folder = os.path.dirname(absolute)
        places = [os.path.realpath(p) for p in getattr(parent, "__path__", [])]
        if folder not in places:
            logger.warning(
                "package `%s` of `%s` resolves to another directory: %s", package, absolute, places
            )
            return None
        if stem == "__init__":
            restore.keep = True
            return parent
        module = importlib.import_module(f"{package}.{stem}")
        restore.keep = True
        return module


def _load_alone(absolute: str, stem: str) -> ModuleType:
    folder = os.path.dirname(absolute)
    with _Restore() as restore:
        if folder not in sys.path:
            sys.path.append(folder)
        module = _execute(_free_name(stem), absolute)
        restore.keep = True
        return module


def _free_name(stem: str) -> str:
    name, n = stem, 0
    while name in sys.modules or (n == 0 and _importable(name)):
        n += 1
        name = f"{stem}_{n}"
    return name


def _importable(name: str) -> bool:
    """Returns True if importing that name would find a module other than the file."""
    return name in sys.stdlib_module_names or name == "torchx"


def _execute(name: str, absolute: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, absolute)
    if spec is None or spec.loader is None:
        from importlib.machinery import SourceFileLoader

        spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, absolute))
        assert spec is not None
        assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _load_packaged_source(path: str) -> ModuleType:
    import hashlib

    source = read_conf_file(path)
    digest = hashlib.sha256(path.encode()).hexdigest()[:8]
    name = f"torchx_component_file_{re.sub(r'[^0-9A-Za-z_]', '_', path)}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = path
    with _Restore() as restore:
        sys.modules[name] = module
        exec(compile(source, path, "exec"), module.__dict__)  # component files are programs
        restore.keep = True
    return module


class _Restore:
    """Undoes changes to ``sys.modules`` and ``sys.path`` unless they are to be kept."""

    def __enter__(self) -> "_Restore":
        self.keep = False
        self._modules = set(sys.modules)
        self._path = list(sys.path)
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep:
            sys.path[:] = self._path
            for name in set(sys.modules) - self._modules:
                del sys.modules[name]
