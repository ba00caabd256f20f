"""Tolerates outages of a backend, for calls that wait."""

import time
from contextvars import ContextVar

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, ProgramNotFound

AWAY_S = 150.0
"""Seconds that a backend may be unreachable before waiting calls fail."""

reported_elsewhere: "ContextVar[bool]" = ContextVar("torchx_reported_elsewhere", default=False)
"""Set while another thread waits for the same app and reports outages."""

logger = get_logger("torchx.runner.api")


class Outage:
    """A backend that cannot be reached: reported once, and when it is back.

    Args:
        longest_s: seconds after which the error is raised.
    """

    def __init__(self, backend: str, longest_s: float) -> None:
        self._backend = backend
        self._longest_s = longest_s
        self._since: float | None = None

    def note(self, err: BackendUnavailable) -> None:
        """Reports the start of an outage; raises the error if it lasts too long or is permanent."""
        if isinstance(err, ProgramNotFound):
            raise err
        now = time.monotonic()
        if self._since is None:
            self._since = now
            text = "`%s` cannot be reached, trying again: %s"
            extra = {"waits_for": f"waiting for `{self._backend}`"}
            logger.warning(text, self._backend, _reason(err), extra=extra)
        elif now - self._since > self._longest_s:
            raise err

    def over(self) -> None:
        """Reports that the backend answers again, if it was away."""
        if self._since is not None:
            away_s = time.monotonic() - self._since
            logger.warning("`%s` answers again after %.0f s", self._backend, away_s)
            self._since = None


def _reason(err: BackendUnavailable) -> str:
    """The error's words, without a name in front of them that is said already."""
    text = str(err)
    name, found, reason = text.partition(" cannot be reached: ")
    return reason if found and " " not in name else text
