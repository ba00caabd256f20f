"""The parts of ``Runner.wait``: pauses between polls, reported changes, the watch for failures."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable
from torchx.schedulers.api import describe_failure
from torchx.specs.api import NONE, AppState, AppStatus

if TYPE_CHECKING:
    from torchx.schedulers.api import Scheduler
    from torchx.schedulers.causes import Explanation

_SHORTEST_PAUSE_S = 0.01

logger = get_logger("torchx.runner.api")


class Pauses:
    """Waits between two polls of an app, by the scheduler's ``wait_for_change`` if it has one."""

    def __init__(self, scheduler: "Scheduler[Any]", app_id: str, interval_s: float) -> None:
        self._hook = getattr(scheduler, "wait_for_change", None)
        self._app_id = app_id
        self._interval_s = interval_s
        self._extra_s = 0.0

    def pause(self, changed: bool) -> None:
        """Returns when the app may have changed, at the latest after the interval.

        A hook that keeps returning at once without a change is slowed down to the interval: the
        scheduler may have nothing to wait on for this app.
        """
        if self._hook is None:
            time.sleep(self._interval_s)
            return
        start = time.monotonic()
        try:
            self._hook(self._app_id, self._interval_s)
        except BackendUnavailable:  # the next query reports it
            time.sleep(self._interval_s)
            return
        waited = time.monotonic() - start
        if changed or waited >= min(_SHORTEST_PAUSE_S, self._interval_s):
            self._extra_s = 0.0
            return
        self._extra_s = min(max(2 * self._extra_s, _SHORTEST_PAUSE_S), self._interval_s)
        time.sleep(self._extra_s)


class Changes:
    """Reports each change of an app's state, and of the reason why it waits.

    Args:
        explain: returns why an app waits; ``None`` if that needs another query.
    """

    def __init__(
        self,
        explain: "Callable[[str], Explanation | None] | None",
        app_id: str,
        app_handle: str,
    ) -> None:
        self._explain = explain
        self._app_id = app_id
        self._handle = app_handle
        self._status: AppStatus | None = None
        self._now = ""
        """The state, and the reason why the app waits or is ending."""
        self._reported = ("", "")
        """That, and the cause, as last reported."""
        self._cause = ""
        self._waited = False

    def note(self, status: AppStatus) -> None:
        """Stores a state, and why the app waits; call it within ``one_look``, for one snapshot."""
        self._status = status
        self._now = _state_text(status)
        waits = status.state is AppState.PENDING
        self._cause = self._find_cause() if waits else ""

    def _find_cause(self) -> str:
        """Returns the cause of a wait in one line; empty if nothing is known beyond the message."""
        found = self._explain(self._app_id) if self._explain is not None else None
        if found is None or found.cause.value in ("none", "starting", "unknown"):
            return ""
        return found.line

    def report(self) -> bool:
        """Logs changes since the last report; returns True if there are any."""
        status = self._status
        if status is None or (self._now, self._cause) == self._reported:
            return False
        self._reported = (self._now, self._cause)
        waits = status.state is AppState.PENDING
        text = self._now
        if self._cause:
            words = text.partition(": ")[2]
            text = f"{status.state.name}: {self._cause}" + (f" ({words})" if words else "")
        # for handlers that show records in another form
        extra = {"app_state": status.state, "app_text": text, "app_waited": self._waited}
        if waits:
            extra["waits_for"] = "waiting"
        logger.info("`%s` is %s", self._handle, text, extra=extra)
        self._waited = self._waited or waits
        return True


def _state_text(status: AppStatus) -> str:
    if status.msg in ("", NONE) or status.msg == status.state.name:
        return status.state.name
    return f"{status.state.name}: {status.msg}"


class FailureWatch:
    """Ends the rest of an app of which a replica has failed for good, and reports it once."""

    def __init__(self, scheduler: "Scheduler[Any]", app_id: str) -> None:
        # schedulers of other packages may lack it
        self._end = getattr(scheduler, "end_after_failure", None)
        self._app_id = app_id

    def look(self) -> None:
        """Checks for such a failure; does nothing after the first."""
        failed = self._end(self._app_id) if self._end is not None else None
        if failed is None:
            return
        self._end = None
        logger.error("%s; ending the other replicas", describe_failure(failed))
