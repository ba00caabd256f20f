"""Ends commands that follow a job when the reader of their output has gone.

Otherwise only the next write to the pipe would notice it, which may be hours later.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

_AGAIN_S = 1.0
"""Seconds until the signal is repeated, in case other code swallowed the exception."""


@contextmanager
def while_read() -> Iterator[None]:
    """Raises ``ReaderGone`` in the block when the reader of stdout goes.

    Does nothing if stdout is not a pipe, or outside the main thread.
    """
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
    """Returns the file descriptor of stdout; ``None`` if that is not a pipe."""
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
    poll.register(number, 0)  # errors are always reported: the reader has gone
    while not done.is_set():
        if poll.poll(_AGAIN_S * 1000):
            if done.is_set():
                return
            signal.pthread_kill(main, signal.SIGPIPE)
            done.wait(_AGAIN_S)


def _gone(number: int, _: object) -> None:
    from torchx.cli._errors import ReaderGone

    raise ReaderGone(number)
