"""Warns of ignore patterns that match only at the top and were likely meant for every level."""

import os
from collections.abc import Sequence

from torchx._projects.entry import Entry
from torchx._projects.ignore import Rules
from torchx._projects.patterns import ending_of, literal_of
from torchx._startup.lazy_logger import get_logger

logger = get_logger(__name__)


def warn_of_top_only(rules: Rules, root: str, entries: Sequence[Entry]) -> None:
    """Warns of patterns that match nothing in the root and would match in a folder below it.

    The grammar says that `*.pyc` is for the root only; release 0.7 took it for every level.
    """
    patterns = rules.of_one_name()
    if not patterns:
        return
    try:
        at_top = os.listdir(root)
    except OSError:  # reported where it is read
        return
    parts = f"/{'/'.join([entry.path for entry in entries])}/"
    left = {
        text: fits
        for text, fits in patterns.items()
        if not any(map(fits, at_top)) and _may_fit_one(text, parts)
    }
    for entry in entries if left else ():
        name = entry.path.rpartition("/")[2]
        for text in [text for text, fits in left.items() if fits(name)]:
            del left[text]
            logger.warning(
                "the pattern `%s` in `%s` applies only to the root of the workspace, where nothing"
                " fits it; `%s` is included, write `**/%s` to leave it out at every level",
                text,
                rules.file,
                entry.path,
                text,
            )


def _may_fit_one(pattern: str, parts: str) -> bool:
    """Returns False if a pattern fits none of these names, each of which is between two ``/``."""
    literal, end = literal_of(pattern), ending_of(pattern)
    if literal is not None:
        return f"/{literal}/" in parts
    return end is None or f"{end}/" in parts
