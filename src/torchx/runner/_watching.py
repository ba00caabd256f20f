"""What ``Runner.wait`` does between two looks at the state, and what it watches beside it."""

import time
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable
from torchx.schedulers.api import describe_failure

if TYPE_CHECKING:
    from torchx.schedulers.api import Scheduler

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
