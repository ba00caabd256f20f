"""Calls that are repeated when they fail for reasons that pass."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from torchx.errors import BackendUnavailable, ProgramNotFound

T = TypeVar("T")

PAUSES_S = (0.2, 0.5, 1.0, 2.0)
"""Seconds before each repetition; up to a fifth is added or taken at random."""


def passes(err: Exception) -> bool:
    """Whether the same call may succeed later."""
    return isinstance(err, BackendUnavailable) and not isinstance(err, ProgramNotFound)


def with_retries(
    call: Callable[[], T],
    pauses_s: Iterable[float] = PAUSES_S,
    transient: Callable[[Exception], bool] = passes,
) -> T:
    """The result of a call that may be made again without harm.

    Args:
        pauses_s: seconds before each repetition; the call is made once more than there are pauses.
        transient: says of an error that the same call may succeed later.
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
