"""Log records as a terminal shows them: a sign and the message, without time and level."""

import logging
import sys

from torchx._secrets import mask_message
from torchx.cli._look import Look
from torchx.specs import AppState

_SIGNS = (
    (logging.ERROR, "bad", "red"),
    (logging.WARNING, "warn", "yellow"),
)


class CalmFormatter(logging.Formatter):
    """Writes records in few words; what an app waits for is a record with `app_state`."""

    def __init__(self) -> None:
        super().__init__()
        self._look = Look(sys.stderr)

    @staticmethod
    def shows(record: logging.LogRecord) -> bool:
        """Whether the record is worth a line: that an app runs at once is what is expected."""
        waited = getattr(record, "app_waited", True)
        return waited or getattr(record, "app_state", None) is not AppState.RUNNING

    def format(self, record: logging.LogRecord) -> str:
        return mask_message(self._format(record))

    def _format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        for level, sign, color in _SIGNS:
            if record.levelno >= level:
                return f"{self._look.paint(self._look.sign(sign), color)} {message}"
        state = getattr(record, "app_state", None)
        if state is not None:
            text = getattr(record, "app_text", message)
            return "\n".join(self._look.wrap(f"{self._look.mark(state)} {text}", "  "))
        return self._look.dim(message)
