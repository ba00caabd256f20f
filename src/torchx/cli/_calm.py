"""Log records for a terminal: a sign and the message, without time and level."""

import logging
import sys

from torchx import _passing
from torchx._secrets import mask_message
from torchx.cli import _output
from torchx.cli._look import Look, duration
from torchx.cli._progress import Progress
from torchx.specs import AppState

_SIGNS = (
    (logging.ERROR, "bad", "red"),
    (logging.WARNING, "warn", "yellow"),
)
_PASSING = (
    "torchx.workspace",
    "torchx._projects",
    "torchx._docker",
    "torchx.schedulers.docker_scheduler._launch",
)
"""Loggers of long operations, where each record replaces the one before it."""


class CalmHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for checkers alone
    """Writes records in a short form.

    Records may have the attributes ``calm_text``, a shorter form, empty to show nothing;
    ``app_state`` and ``app_waited`` if they report the state of an app; ``waits_for``, which is
    shown with the elapsed time until the next record.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._look = Look(sys.stderr)
        self._progress = Progress(sys.stderr) if self._look.moves else None
        if self._progress is not None:
            _output.before_writing(self._progress.clear)
            _passing.show_on(self._progress.show)

    def emit(self, record: logging.LogRecord) -> None:
        if not _worth_a_line(record):
            return
        progress = self._progress
        if progress is not None and _passes(record):
            progress.show(mask_message(record.getMessage()))
            return
        took_s = progress.clear() if progress is not None else 0.0
        if took_s and hasattr(record, "calm_text"):
            record.calm_text = f"{record.calm_text} ({duration(took_s)})"
        super().emit(record)
        _output.note_line()
        waits_for = getattr(record, "waits_for", "")
        if progress is not None and waits_for:
            progress.show(waits_for)

    def format(self, record: logging.LogRecord) -> str:
        return mask_message(self._format(record))

    def _format(self, record: logging.LogRecord) -> str:
        message = str(getattr(record, "calm_text", None) or record.getMessage())
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            message = f"{message}\n{trace}"
        for level, sign, color in _SIGNS:
            if record.levelno >= level:
                return self._wrapped(f"{self._look.paint(self._look.sign(sign), color)} {message}")
        state = getattr(record, "app_state", None)
        if state is not None:
            text = getattr(record, "app_text", message)
            return self._wrapped(f"{self._look.mark(state)} {text}")
        return self._look.dim(self._wrapped(message))

    def _wrapped(self, text: str) -> str:
        """Wraps lines between words; indented lines are kept."""
        lines: list[str] = []
        for line in text.split("\n"):
            lines += [line] if line.startswith(" ") else self._look.wrap(line, "  ")
        return "\n".join(lines)


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Returns True if the record is shown; an app that runs at once is not worth a line."""
    if getattr(record, "calm_text", None) == "":
        return False
    waited = getattr(record, "app_waited", True)
    return waited or getattr(record, "app_state", None) is not AppState.RUNNING


def _passes(record: logging.LogRecord) -> bool:
    """Returns True if the record is a step of a long operation without a display of its own."""
    if record.levelno >= logging.WARNING or hasattr(record, "calm_text"):
        return False
    return record.name.startswith(_PASSING)
