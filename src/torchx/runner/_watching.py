"""What ``Runner.wait`` does between two looks at the state, and what it watches beside it."""

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
    """Waits between two looks at an app, through the hook of the scheduler where it has one."""

    def __init__(self, scheduler: "Scheduler[Any]", app_id: str, interval_s: float) -> None:
        self._hook = getattr(scheduler, "wait_for_change", None)
        self._app_id = app_id
        self._interval_s = interval_s
        self._extra_s = 0.0

    def pause(self, changed: bool) -> None:
        """Returns when there may be news, at the latest after the interval.

        A hook that keeps returning at once without news is slowed down to the interval: a
        scheduler that has one may still have nothing to wait on for this app.
        """
        if self._hook is None:
            time.sleep(self._interval_s)
            return
        start = time.monotonic()
        try:
            self._hook(self._app_id, self._interval_s)
        except BackendUnavailable:  # the next look reports it
            time.sleep(self._interval_s)
            return
        waited = time.monotonic() - start
        if changed or waited >= min(_SHORTEST_PAUSE_S, self._interval_s):
            self._extra_s = 0.0
            return
        self._extra_s = min(max(2 * self._extra_s, _SHORTEST_PAUSE_S), self._interval_s)
        time.sleep(self._extra_s)


class Changes:
    """Reports each change of the state of an app, and of the reason for which it waits.

    Args:
        explain: says why an app waits; ``None`` if that takes another look.
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
        """The state, and why the app waits or is ending."""
        self._reported = ("", "")
        """That, and the cause, as they were last told."""
        self._cause = ""
        self._waited = False

    def note(self, status: AppStatus) -> None:
        """Takes in a state, and why the app waits: from the same look, so call it within that."""
        self._status = status
        self._now = _state_text(status)
        waits = status.state is AppState.PENDING
        self._cause = self._find_cause() if waits else ""

    def _find_cause(self) -> str:
        """The cause of a wait in one line; empty if nothing is known beyond the message."""
        found = self._explain(self._app_id) if self._explain is not None else None
        if found is None or found.cause.value in ("none", "starting", "unknown"):
            return ""
        return found.line

    def report(self) -> bool:
        """Logs what has changed since the last time, and tells whether anything has."""
        status = self._status
        if status is None or (self._now, self._cause) == self._reported:
            return False
        self._reported = (self._now, self._cause)
        waits = status.state is AppState.PENDING
        text = self._now
        if self._cause:
            words = text.partition(": ")[2]
            text = f"{status.state.name}: {self._cause}" + (f" ({words})" if words else "")
        # for who shows records in another form
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
        """Looks whether there is such a failure; does nothing after the first."""
        failed = self._end(self._app_id) if self._end is not None else None
        if failed is None:
            return
        self._end = None
        logger.error("%s; ending the other replicas", describe_failure(failed))
