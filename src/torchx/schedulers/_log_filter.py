"""Filters log lines by a regular expression, for schedulers that read logs themselves."""

import re
from collections.abc import Iterable, Iterator

from torchx.errors import InvalidInput

from .api import LogBlock, split_lines


def lines_matching(lines: Iterable[str], regex: str) -> Iterator[str]:
    """Yields the lines that match; line ends are not part of the match.

    Raises:
        InvalidInput: (by the call itself) for a text that is no regular expression.
    """
    search = _compiled(regex).search
    return (line for line in lines if search(line.rstrip("\n")))


def blocks_matching(blocks: Iterable[LogBlock], regex: str) -> Iterator[LogBlock]:
    """Yields the blocks with only the lines that match; see ``lines_matching``."""
    search = _compiled(regex).search
    kept = ((b, [x for x in split_lines(b.text) if search(x.rstrip("\n"))]) for b in blocks)
    return (LogBlock(b.role, b.replica, b.attempt, "".join(lines)) for b, lines in kept if lines)


def _compiled(regex: str) -> "re.Pattern[str]":
    try:
        return re.compile(regex)
    except re.error as err:
        msg = f"`{regex}` is not a regular expression: {err}"
        raise InvalidInput(msg) from None
