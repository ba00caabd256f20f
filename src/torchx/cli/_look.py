"""Formatting for one stream: width, marks, colours of states, ages and durations.

A stream that is not a terminal gets the same words without colour, and unlimited lines.
"""

import os
import sys
from typing import TYPE_CHECKING

from torchx.cli import _output
from torchx.specs import AppState
from torchx.util._terminal import words_of

if TYPE_CHECKING:
    from typing import TextIO

_NARROWEST = 20
_WIDEST = 200
_DEFAULT_WIDTH = 80
UNLIMITED = 1 << 20

_UNICODE = {
    "fine": "✓",
    "bad": "✗",
    "live": "●",
    "wait": "○",
    "warn": "!",
    "bar": "│",
    "arrow": "→",
    "cut": "…",
}
_ASCII = {
    "fine": "+",
    "bad": "x",
    "live": "*",
    "wait": ".",
    "warn": "!",
    "bar": "|",
    "arrow": "->",
    "cut": "~",
}

_MARKS = {
    AppState.SUCCEEDED: "fine",
    AppState.FAILED: "bad",
    AppState.CANCELLED: "bad",
    AppState.RUNNING: "live",
}
_COLORS = {
    AppState.SUCCEEDED: "green",
    AppState.FAILED: "red",
    AppState.CANCELLED: "gray",
    AppState.RUNNING: "green",
    AppState.PENDING: "yellow",
    AppState.SUBMITTED: "yellow",
}

REPLICA_COLORS = ("36", "35", "34", "33", "32", "96", "95", "94", "93", "92")
"""Escape codes that are readable on light and dark backgrounds; red is for errors."""


class Look:
    """The formatting of one stream."""

    def __init__(self, stream: "TextIO | None" = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.terminal = is_terminal(self.stream)
        self.moves = self.terminal and os.environ.get("TERM") != "dumb"
        """True if lines may be redrawn."""
        self.colors = _output.palette(self.stream)
        signs = self.terminal and _can_write(self.stream, "".join(_UNICODE.values()))
        self._signs = _UNICODE if signs else _ASCII

    @property
    def width(self) -> int:
        """Columns of the terminal; practically unlimited elsewhere."""
        return min(max(columns(self.stream), _NARROWEST), _WIDEST) if self.terminal else UNLIMITED

    def sign(self, name: str) -> str:
        """Returns a sign of `_UNICODE`, or its ASCII form if the stream needs it."""
        return self._signs[name]

    def mark(self, state: AppState) -> str:
        """Returns the coloured sign of a state."""
        return self.paint(self.sign(_MARKS.get(state, "wait")), state_color(state))

    def state(self, state: AppState) -> str:
        """Returns the coloured name of a state."""
        return self.paint(state.name, state_color(state))

    def paint(self, text: str, color: str) -> str:
        """Returns the text in a colour of the palette, if colour is on."""
        begin = getattr(self.colors, color) if color else ""
        return f"{begin}{text}{self.colors.endc}" if begin else text

    def dim(self, text: str) -> str:
        """Returns the text dimmed, for less important parts."""
        return self.paint(text, "gray")

    def bold(self, text: str) -> str:
        """Returns the text in bold, for the most important parts."""
        return self.paint(text, "bold")

    def cut(self, text: str, width: int) -> str:
        """Cuts the text to that many columns; a sign marks the cut."""
        return text if len(text) <= width else text[: max(width - 1, 0)] + self.sign("cut")

    def wrap(self, text: str, indent: str = "", width: int | None = None) -> list[str]:
        """Wraps the text between words; indents lines after the first.

        Text in backticks is kept on one line if it fits, so that it can be pasted.

        Args:
            width: available columns; ``None`` for those of the terminal.
        """
        width = self.width if width is None else width
        if printed_width(text) <= width:
            return [text]
        lines: list[str] = []
        current = text[: len(text) - len(text.lstrip())]
        for word in words_of(text, width - len(indent), printed_width):
            if current.strip() and printed_width(current) + 1 + printed_width(word) > width:
                lines.append(current)
                current = indent + word
            else:
                current = f"{current} {word}" if current.strip() else current + word
        return [*lines, current]

    def hint(self, text: str, indent: str = "") -> list[str]:
        """Lines with what to do. A command, which begins small, is in one piece, to be pasted."""
        head = f"{indent}{self.sign('arrow')} "
        prose, colon, command = text.rpartition(": ")
        if text[:1].islower() or printed_width(head + text) <= self.width:
            return [head + text]
        deeper = " " * len(head)
        if colon and command[:1].islower():
            return [*self.wrap(f"{head}{prose}:", deeper), deeper + command]
        return self.wrap(head + text, deeper)


def printed_width(text: str) -> int:
    """Returns the columns of a text that may have colours.

    >>> printed_width("\\033[31mred\\033[0m")
    3
    """
    if "\033" not in text:
        return len(text)
    import re

    return len(re.sub(r"\033\[[0-9;:]*m", "", text))


def state_color(state: AppState) -> str:
    """Returns the name of a state's colour; empty for none."""
    return _COLORS.get(state, "")


def is_terminal(stream: "TextIO") -> bool:
    """Returns True if the stream is a terminal."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # a substitute, or closed
        return False


def columns(stream: "TextIO") -> int:
    """Returns the width of the terminal; ``COLUMNS`` wins, as usual."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except (AttributeError, OSError, ValueError):
        return _DEFAULT_WIDTH


def _can_write(stream: "TextIO", text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def age(seconds: float) -> str:
    """Formats an age in one unit.

    >>> age(3), age(180), age(7300), age(200_000)
    ('3s', '3m', '2h', '2d')
    """
    whole = max(int(seconds), 0)
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * length or (whole >= length and unit != "d"):
            return f"{whole // length}{unit}"
    return f"{whole}s"


def duration(seconds: float) -> str:
    """Formats a duration in at most two units.

    >>> duration(0.81), duration(14.3), duration(200), duration(7300)
    ('0.8s', '14s', '3m20s', '2h01m')
    """
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3_600}h{whole % 3_600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3_600:02}h"
