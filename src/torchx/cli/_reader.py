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

    def gone(signum: int, _: object) -> None:
        # a connection that the other side has closed raises this signal, too
        if _has_no_reader(number, 0):
            raise ReaderGone(signum)

    from torchx.cli._errors import ReaderGone

    before = signal.signal(signal.SIGPIPE, gone)
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
    import signal

    while not done.is_set():
        if _has_no_reader(number, _AGAIN_S):
            if done.is_set():
                return
            signal.pthread_kill(main, signal.SIGPIPE)
            done.wait(_AGAIN_S)


def _has_no_reader(number: int, timeout_s: float) -> bool:
    """Returns True as soon as nobody can read the pipe any more, False after the time."""
    import select

    poll = select.poll()
    poll.register(number, 0)  # errors are always reported: the reader has gone
    return bool(poll.poll(timeout_s * 1000))
