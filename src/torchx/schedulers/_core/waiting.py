"""Waits for what nobody tells of, by looking for it."""

import time
from collections.abc import Callable

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5


def wait_until(changed: Callable[[], bool], timeout_s: float) -> None:
    """Returns when something has changed, at the latest after the time; looks ever more seldom."""
    pause_s = _FIRST_PAUSE_S
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(pause_s, left_s))
        pause_s = min(1.3 * pause_s, _LONGEST_PAUSE_S)
        if changed():
            return
