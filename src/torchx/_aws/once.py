"""Calls that must have their effect once, on a service that has no token for that."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from torchx._retry import pause
from torchx.errors import BackendUnavailable

from .errors import AnswerLost

T = TypeVar("T")

PAUSES_S = (0.5, 1.0, 2.0, 4.0)
_LOOKS_S = (0.0, 1.0, 2.0)
"""Before each look for what may have been made: lists lag behind."""


def exactly_once(
    create: Callable[[], T],
    find: Callable[[], T | None],
    what: str,
    pauses_s: Sequence[float] = PAUSES_S,
) -> T:
    """What was made. After a lost answer it is looked for, and made only if it is not there.

    Args:
        create: sends the request once (``AwsService.call_once``).
        find: looks for what it makes, by a name that nothing else has; ``None`` if there is none.
        what: what is made, for the message: ``job `x```.
        pauses_s: before each repetition; the request is sent once more than there are pauses.

    Raises:
        BackendUnavailable: if AWS stays away; the message tells if it may have been made.
        TorchXError: if AWS refuses.
    """
    for pause_s in (*pauses_s, None):
        try:
            return create()
        except BackendUnavailable as err:
            if isinstance(err, AnswerLost):
                found = _found(find, what, err)
                if found is not None:
                    return found
            if pause_s is None:
                raise
        pause(pause_s)
    raise AssertionError  # the last turn returns or raises


def _found(find: Callable[[], T | None], what: str, lost: AnswerLost) -> T | None:
    for pause_s in _LOOKS_S:
        time.sleep(pause_s)
        try:
            found = find()
        except BackendUnavailable as err:
            msg = (
                f"{lost}; {what} may have been made all the same, which cannot be found out: {err}"
            )
            raise AnswerLost(msg) from err
        if found is not None:
            return found
    return None
