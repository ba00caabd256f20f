"""Retries calls that fail for transient reasons."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from torchx.errors import BackendUnavailable, ProgramNotFound

T = TypeVar("T")

PAUSES_S = (0.2, 0.5, 1.0, 2.0)
"""Seconds before each retry, with up to 20 % of random jitter in either direction."""


def passes(err: Exception) -> bool:
    """Returns True if the same call may succeed later."""
    return isinstance(err, BackendUnavailable) and not isinstance(err, ProgramNotFound)


def with_retries(
    call: Callable[[], T],
    pauses_s: Iterable[float] = PAUSES_S,
    transient: Callable[[Exception], bool] = passes,
) -> T:
    """Returns the result of an idempotent call, retrying it after transient errors.

    Args:
        pauses_s: seconds before each retry; the call is made at most once more than there are
            pauses.
        transient: returns True for an error after which the same call may succeed.
    """
    for pause_s in pauses_s:
        try:
            return call()
        except Exception as err:
            if not transient(err):
                raise
        pause(pause_s)
    return call()


def pause(pause_s: float) -> None:
    """Waits so long, or up to a fifth more or less: many do not come back at once."""
    import random  # 3 ms, for a case that is rare

    time.sleep(pause_s * random.Random().uniform(0.8, 1.2))
