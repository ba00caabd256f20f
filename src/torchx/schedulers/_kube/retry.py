"""Limited retries of calls.

Separate from ``torchx._retry`` because a server may choose the pause, all retries of a call share
one time limit, and a create looks up its object between retries.
"""

import time
from collections.abc import Callable

from torchx._startup.dataclass import light_dataclass


@light_dataclass(frozen=True)
class Patience:
    """Timeouts and retries of one call.

    Args:
        timeout_s: seconds for the response to one request.
        pauses_s: seconds before each retry, with up to 50 % of jitter.
        longest_pause_s: longest pause that a server may request.
        total_s: no retry starts later than this.
    """

    timeout_s: float = 60.0
    pauses_s: tuple[float, ...] = (0.1, 0.3, 1.0, 2.0, 4.0)
    longest_pause_s: float = 30.0
    total_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Returns the pause after that many consecutive failures; the last one repeats."""
        pauses_s = self.pauses_s or (0.0,)
        return pauses_s[min(failures, len(pauses_s) - 1)] * _spread()


def _spread() -> float:
    """Returns a random factor for pauses, so that many clients do not retry at once."""
    import random  # 1 ms, for a case that is rare

    return random.Random().uniform(0.5, 1.5)


class Retries:
    """Counts the retries of one call and waits between them."""

    def __init__(self, patience: Patience, pause: Callable[[float], None]) -> None:
        self._patience = patience
        self._pause = pause
        self._pauses = iter(patience.pauses_s)
        self._started_s = time.monotonic()

    def again(self, err: Exception) -> bool:
        """Waits, as long as ``err`` says if it does; returns ``False`` to give up."""
        base_s = next(self._pauses, None)
        if base_s is None:
            return False
        asked_s: float | None = getattr(err, "retry_after_s", None)
        wait_s = base_s * _spread() if asked_s is None else asked_s
        wait_s = min(wait_s, self._patience.longest_pause_s)
        if time.monotonic() - self._started_s + wait_s > self._patience.total_s:
            return False
        self._pause(wait_s)
        return True
