"""File systems by URL, through fsspec, which is an optional package."""

from typing import Any

from torchx.errors import FsspecNotInstalled, InvalidInput


def filesystem(url: str) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the path there.

    Raises:
        FsspecNotInstalled: (a ``ModuleNotFoundError``) without fsspec.
        InvalidInput: if there is no such kind of URL, or the package for that kind is missing.
    """
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as err:
        if err.name is None or err.name.partition(".")[0] != "fsspec":
            raise
        msg = f"`{url}` needs fsspec"
        raise FsspecNotInstalled(msg, name="fsspec", extra="fsspec") from None
    try:
        fs, path = url_to_fs(url)
    except (ValueError, ImportError) as err:
        msg = f"`{url}` is not a path or a URL of a file system that is installed: {err}"
        raise InvalidInput(msg) from None
    return fs, path
