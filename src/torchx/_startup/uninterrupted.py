"""Runs calls that no signal may interrupt.

Python runs signal handlers in the main thread, between any two steps, and exceptions thrown by
other threads arrive there, too. A thread of its own is spared both.
"""

from _thread import allocate_lock, start_new_thread
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")

_LOOK_S = 0.05


class Uninterrupted(Generic[R]):
    """A call that is made in a thread of its own, once.

    >>> Uninterrupted(lambda: 6 * 7).result()
    42
    """

    def __init__(self, call: "Callable[[], R]") -> None:
        self._call = call
        self._mutex = allocate_lock()
        self._stopped = False
        self._begun = False
        self._over = False
        self._ended = allocate_lock()
        self._ended.acquire()
        self._results: list[R] = []
        self._error: BaseException | None = None

    def result(self) -> R:
        """Makes the call; returns or raises what it does.

        An interruption is raised here, while the call goes on: see ``stop``.
        """
        start_new_thread(self._run, ())
        # a signal that arrives just before the wait does not end it: poll
        while not self._ended.acquire(timeout=_LOOK_S):
            pass
        if self._error is not None:
            raise self._error
        return self._results[0]

    def stop(self, hurry: "Callable[[], None]") -> None:
        """Returns once the call has ended, or can no longer begin.

        Args:
            hurry: called repeatedly while the call runs, to make it end.
        """
        with self._mutex:
            self._stopped = True
        while self._begun and not self._over:
            if not self._ended.acquire(timeout=_LOOK_S):
                hurry()

    def _run(self) -> None:
        with self._mutex:
            if self._stopped:
                return
            self._begun = True
        try:
            self._results.append(self._call())
        except BaseException as err:  # noqa: BLE001 - it is raised by `result`
            self._error = err
        finally:
            self._over = True
            self._ended.release()
