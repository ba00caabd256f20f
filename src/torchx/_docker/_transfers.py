"""Progress of a pull or a push, layer by layer."""

import io
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from torchx.errors import TransferFailed

_BLUE, _END = "\033[34m", "\033[0m"


def show(events: Iterable[Mapping[str, Any]], stream: TextIO | None, verb: str) -> None:
    """Shows the events of a transfer as they arrive.

    On a terminal each layer has one line that is updated in place; elsewhere a line is written for
    each new state of a layer, without progress.

    Args:
        stream: ``None`` is stderr.
        verb: ``push`` or ``pull``.

    Raises:
        TransferFailed: if an event has an error.
    """
    out = sys.stderr if stream is None else stream
    lines = _Lines(out, verb) if out.isatty() else _Plain(out, verb)
    try:
        for event in events:
            if event.get("error"):
                raise TransferFailed(str(event["error"]))
            status = event.get("status")
            if not status:
                continue
            layer = event.get("id")
            if layer:
                lines.layer(str(layer), str(status), str(event.get("progress") or ""))
            else:
                lines.message(str(status))
    finally:
        out.flush()


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
