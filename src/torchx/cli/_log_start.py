"""Waits for the start of an app whose logs were requested."""

import time

from torchx._outages import AWAY_S, Outage
from torchx.cli import _output
from torchx.cli._log_query import LogTarget
from torchx.errors import BackendUnavailable
from torchx.specs import AppStatus

_FIRST_POLL_S = 0.05
_LAST_POLL_S = 1.0


class StartWait:
    """Waits for the start of an app with growing pauses, and reports why it waits.

    Args:
        follows: tolerate an outage from the first query on; else only once the app was waited for.
    """

    def __init__(self, target: LogTarget, follows: bool) -> None:
        self._target = target
        self._waits = follows
        self._reason: str | None = None
        self._pause_s = _FIRST_POLL_S
        self._outage = Outage(target.scheduler, AWAY_S)

    def is_ahead(self, status: AppStatus) -> None:
        """Records that the app has not started, and pauses."""
        self._outage.over()
        self._waits = True
        reason = (status.msg or "").partition("\n")[0]
        if reason != self._reason:
            self._reason = reason
            shown = f"{status.state}: {reason}" if reason else f"{status.state}"
            app_id = self._target.app_id
            extra = {
                "app_state": status.state,
                "app_text": f"{app_id} {shown}",
                "waits_for": "waiting for its start",
            }
            _output.log().info("Waiting for app `%s` to start: %s", app_id, shown, extra=extra)
        self._pause()

    def is_away(self, err: BackendUnavailable) -> None:
        """Records an outage of the backend, and pauses; raises the error if not yet waiting."""
        if not self._waits:
            raise err
        self._outage.note(err)
        self._pause()

    def _pause(self) -> None:
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _LAST_POLL_S)
