"""Calls that must take effect once, on services without idempotency tokens."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from torchx._retry import pause
from torchx.errors import BackendUnavailable

from .errors import AnswerLost

T = TypeVar("T")

PAUSES_S = (0.5, 1.0, 2.0, 4.0)
_LOOKS_S = (0.0, 1.0, 2.0)
"""Seconds before each search for the created object: lists lag behind."""


def exactly_once(
    create: Callable[[], T],
    find: Callable[[], T | None],
    what: str,
    pauses_s: Sequence[float] = PAUSES_S,
) -> T:
    """Creates an object once and returns it. After a lost response, it searches before retrying.

    Args:
        create: sends the request once (``AwsService.call_once``).
        find: finds the created object by its unique name; ``None`` if there is none.
        what: the object, for the message: ``job `x```.
        pauses_s: seconds before each retry; the request is sent at most once more than there are
            pauses.

    Raises:
        BackendUnavailable: if AWS stays away; the message says whether it may have been created.
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
