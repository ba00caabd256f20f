"""Progress of a pull or a push, layer by layer."""

import io
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from torchx import _passing
from torchx.errors import TransferFailed

_THERE = ("Pull complete", "Already exists", "Pushed", "Layer already exists", "Mounted from")
"""How the daemon begins to say that a layer needs nothing more."""
_MOVING = ("Downloading", "Pushing")
_BLUE, _END = "\033[34m", "\033[0m"


def show(
    events: Iterable[Mapping[str, Any]], stream: TextIO | None, verb: str, image: str = ""
) -> int:
    """Shows the events of a transfer as they arrive, and returns the number of bytes moved.

    Output for stderr is a single line if a display of steps is active (`torchx._passing`).
    Otherwise each layer has one line on a terminal, updated in place; elsewhere a line is written
    for each new state of a layer, without progress.

    Args:
        stream: ``None`` is stderr.
        verb: ``push`` or ``pull``.
        image: its name, to be shown.

    Raises:
        TransferFailed: if an event has an error.
    """
    out = sys.stderr if stream is None else stream
    tally = _passing.Tally(f"{verb}ing `{image}`" if image else f"{verb}ing")
    lines = _lines(out, verb, tally)
    try:
        for event in events:
            if event.get("error"):
                raise TransferFailed(str(event["error"]))
            status = event.get("status")
            if not status:
                continue
            layer = event.get("id")
            if layer:
                _count(tally, str(layer), str(status), event.get("progressDetail") or {})
                lines.layer(str(layer), str(status), str(event.get("progress") or ""))
            else:
                lines.message(str(status))
    finally:
        out.flush()
    return tally.bytes_moved


def _lines(out: TextIO, verb: str, tally: _passing.Tally) -> "_Plain | _Line":
    """Returns the object that shows the transfer on this stream."""
    display = _passing.display()
    if display is not None and out is sys.stderr:
        return _Line(display, tally)
    moves = out.isatty() and os.environ.get("TERM") != "dumb"
    return _Lines(out, verb) if moves else _Plain(out, verb)


def _count(tally: _passing.Tally, layer: str, status: str, progress: Mapping[str, Any]) -> None:
    """Records the state of a layer; ignores other ids, such as the tag of a pull."""
    if status.startswith("Pulling from"):
        return
    if status.startswith(_THERE):
        tally.finish(layer)
    elif status in _MOVING:
        tally.note(layer, progress.get("current"), progress.get("total"))
    else:
        tally.note(layer)


class _Line:
    """A single line for all layers."""

    def __init__(self, display: _passing.Display, tally: _passing.Tally) -> None:
        self._display = display
        self._tally = tally
        self._shown = ""

    def message(self, text: str) -> None:
        self._show()

    def layer(self, layer: str, status: str, progress: str) -> None:
        self._show()

    def _show(self) -> None:
        text = str(self._tally)
        if text != self._shown:
            self._shown = text
            self._display(text)


def silent() -> TextIO:
    """Returns a stream for ``show`` that discards output; errors are still raised."""
    return io.StringIO()


class _Plain:
    def __init__(self, out: TextIO, verb: str) -> None:
        self._out = out
        self._header = f"docker {verb} "
        self._seen: dict[str, str] = {}

    def message(self, text: str) -> None:
        self._out.write(f"{self._header}{text}\n")

    def layer(self, layer: str, status: str, progress: str) -> None:
        if self._seen.get(layer) != status:
            self._seen[layer] = status
            self._out.write(f"{self._header}{layer}: {status}\n")


class _Lines(_Plain):
    """The lines of the layers on a terminal, numbered from the bottom."""

    def __init__(self, out: TextIO, verb: str) -> None:
        super().__init__(out, verb)
        if not os.environ.get("NO_COLOR"):
            self._header = f"{_BLUE}docker {verb} {_END}"
        self._room = _columns(out) - len(f"docker {verb} ")
        self._rows: dict[str, int] = {}
        self._count = 0

    def message(self, text: str) -> None:
        super().message(self._cut(text))
        self._count += 1

    def layer(self, layer: str, status: str, progress: str) -> None:
        text = f"{self._header}{self._cut(f'{layer}: {status} {progress}')}"
        if layer not in self._rows:
            self._rows[layer] = self._count
            self._count += 1
            self._out.write(f"{text}\n")
            return
        up = self._count - self._rows[layer]
        self._out.write(f"\033[{up}F\033[2K{text}\033[{up}E")
        self._out.flush()

    def _cut(self, text: str) -> str:
        """Cuts a text to the terminal's width: wrapping would break the positions of lines."""
        text = re.sub(r"[\x00-\x1f\x7f]", " ", text)
        if self._room <= 0:
            return text
        if len(text) >= self._room:  # the numbers are more useful than the progress bar
            text = re.sub(r" \[[=> ]*\] ?", " ", text)
        return text[: self._room - 1]


def _columns(out: TextIO) -> int:
    """Returns the columns of the terminal; 0 if they are unknown."""
    try:
        return os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return 0
