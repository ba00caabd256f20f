"""Remembers images by the files they were built from, so that unchanged ones are not rebuilt."""

import os
import time
from collections.abc import Sequence

from torchx._files import replace_file
from torchx._home import TORCHX_HOME, home_dir
from torchx._projects.entry import Entry
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput

logger = get_logger(__name__)

_SETTLED_NS = 2_000_000_000
"""A file that changed within this time may change again with the same time stamp."""


def fingerprint(entries: Sequence[Entry], *details: str) -> str | None:
    """Returns a hash that changes with every file of the tree and with the details.

    ``None`` if it cannot be computed without reading the files: one is not local, or has just
    changed.
    """
    import hashlib

    digest = hashlib.sha256(repr(details).encode(errors="surrogateescape"))
    now = time.time_ns()
    for entry in entries:
        if entry.kind == "file" and entry.content is None:
            status = entry.status
            if status is None or now - status.st_ctime_ns < _SETTLED_NS:
                return None
        digest.update(repr(entry.identity()).encode(errors="surrogateescape"))
        digest.update(entry.content or b"")
    return digest.hexdigest()


def recall(place: str, fingerprint: str) -> str | None:
    """Returns the image last built from the same files; ``None`` if unknown."""
    try:
        with open(_record(home_dir(), place), encoding="utf-8") as file:
            known, _, image = file.read().partition(" ")
    except (OSError, ValueError, InvalidInput):
        return None
    return image if known == fingerprint and image else None


def remember(place: str, fingerprint: str, image: str) -> None:
    """Stores the image for the next build; one for each place."""
    try:
        path = _record(str(TORCHX_HOME()), place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        replace_file(path, f"{fingerprint} {image}".encode())
    except (OSError, InvalidInput) as err:
        logger.debug("the image `%s` cannot be recorded for the next build: %s", image, err)


def _record(home: str, place: str) -> str:
    import hashlib

    name = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:32]
    return os.path.join(home, "images", name)
