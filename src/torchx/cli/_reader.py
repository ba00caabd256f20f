"""Ends commands that follow something once nobody reads what they write.

That the reader of a pipe has gone is noticed by the next write, which may be hours away.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

_AGAIN_S = 1.0
"""After which the main thread is told once more, where something has swallowed the exception."""


@contextmanager
def while_read() -> Iterator[None]:
    """Raises ``ReaderGone`` within when the reader of stdout goes; elsewhere than on a pipe, and in
    other threads than the main one, it does nothing."""
    import signal
    import threading

    main = threading.main_thread()
    number = _pipe()
    if number is None or threading.current_thread() is not main or main.ident is None:
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(number, main.ident, done), daemon=True)
    before = signal.signal(signal.SIGPIPE, _gone)
    try:
        watcher.start()
        yield
    finally:
        done.set()
        signal.signal(signal.SIGPIPE, before)


def _pipe() -> int | None:
    """The file descriptor of stdout, if it is a pipe."""
    import os
    import stat

    try:
        number = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
    except (AttributeError, OSError, ValueError):  # a stand-in, or closed
        return None
    return number if is_pipe else None


def _watch(number: int, main: int, done: "threading.Event") -> None:
    import select
    import signal

    poll = select.poll()
    poll.register(number, 0)  # errors are told without being asked for: nobody reads
    while not done.is_set():
        if poll.poll(_AGAIN_S * 1000):
            if done.is_set():
                return
            signal.pthread_kill(main, signal.SIGPIPE)
            done.wait(_AGAIN_S)


def _gone(number: int, _: object) -> None:
    from torchx.cli._errors import ReaderGone

    raise ReaderGone(number)
