"""How ``Runner.wait`` spends its time."""

import time
from typing import TYPE_CHECKING, Any

from torchx.errors import BackendUnavailable

if TYPE_CHECKING:
    from torchx.schedulers.api import Scheduler

_SHORTEST_PAUSE_S = 0.01


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
