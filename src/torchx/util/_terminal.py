"""The size of the terminal, without what `shutil` costs at the start, and texts that fit it."""

import os
import sys

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_LEAST = 20
_DEEPER = 6
"""Columns by which a part goes on below that is too long for its column."""


def help_width() -> int:
    """Columns for help texts, as argparse chooses them."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns) - 2
    try:
        return (os.get_terminal_size(1).columns or 80) - 2
    except (OSError, ValueError):  # not a terminal
        return 78


def help_lines(text: str, width: int) -> list[str]:
    """Lines of whole words, as they are typed, where argparse itself breaks long ones.

    >>> help_lines("one of kubernetes_mcad, lsf", 10)
    ['one of', 'kubernetes_mcad,', 'lsf']
    """
    import textwrap

    words = " ".join(text.split())
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False)


def fitted_to(stream: "TextIO | None", text: str) -> str:
    """The text with lines that fit the terminal; as it is elsewhere."""
    try:
        if stream is None or not stream.isatty():
            return text
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdigit() else os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, OSError, ValueError):  # a stand-in, or closed
        return text
    return fitted(text, max(width, _LEAST)) if width > 0 else text


def fitted_help(text: str) -> str:
    """Help, which goes to stdout, with lines that fit the terminal."""
    return fitted_to(sys.stdout, text)


def fitted(text: str, width: int) -> str:
    r"""The text with breaks between words where a line is too long; the other lines as they are.

    Prose goes on at the margin, what stands in a column goes on in it, and a command that is
    indented, which people paste, stays whole.

    >>> print(fitted("one two three\nfour five", 10))
    one two
    three four
    five
    >>> print(fitted("  cmd --all      what it does\n  cmd --with long options", 20))
      cmd --all
            what it does
      cmd --with long options
    >>> print(fitted("  cmd    what it does and\n         is", 20))
      cmd    what it
             does and is
    """
    lines: list[str] = []
    left = text.split("\n")
    while left:
        line = left.pop(0)
        if len(line) <= width:
            lines.append(line)
            continue
        at = _margin(line)
        while left and at is not None and _goes_on(left[0], at):
            line += " " + left.pop(0).strip()
        lines += _broken(line, at, width)
    return "\n".join(lines)


def _margin(line: str) -> int | None:
    """Returns the column where text that may be wrapped begins; ``None`` for a command."""
    body = line.lstrip(" ")
    indent = len(line) - len(body)
    head, gap, rest = body.partition("  ")
    if gap:
        return indent + len(head) + len(gap) + len(rest) - len(rest.lstrip(" "))
    return None if indent else 0


def _goes_on(line: str, at: int) -> bool:
    """Returns True if a line continues the one above it, whose text begins in that column."""
    return bool(line.strip()) and len(line) - len(line.lstrip(" ")) == at


def _broken(line: str, at: int | None, width: int) -> list[str]:
    if at is None:
        return [line]
    if at == 0:
        return _wrapped("", line, len("usage: ") if line.startswith("usage: ") else 0, width)
    if at <= width // 2:
        return _wrapped(line[:at], line[at:], at, width)
    indent = len(line) - len(line.lstrip(" "))
    deeper = indent + (_DEEPER if indent <= width // 4 else 0)
    return [line[:at].rstrip(), *_wrapped(" " * deeper, line[at:], deeper, width)]


def _wrapped(head: str, text: str, hang: int, width: int) -> list[str]:
    lines: list[str] = []
    current, empty = head, True
    for word in words_of(text, width - hang):
        if not empty and len(current) + 1 + len(word) > width:
            lines.append(current)
            current, empty = " " * hang, True
        current += word if empty else f" {word}"
        empty = False
    return [*lines, current]


def words_of(text: str, width: int, measure: "Callable[[str], int]" = len) -> list[str]:
    """The words of a text; what stands in backticks is one, if it is within the width.

    >>> words_of("try `torchx list -a`, or wait", 20)
    ['try', '`torchx list -a`,', 'or', 'wait']
    """
    if "`" not in text:
        return text.split()
    words: list[str] = []
    held: list[str] = []
    for word in text.split():
        held.append(word)
        whole = " ".join(held)
        if whole.count("`") % 2 == 0:
            words += [whole] if measure(whole) <= width else held
            held = []
    return words + held
