"""Ends commands that follow a job when the reader of their output has gone.

Otherwise only the next write to the pipe would notice it, which may be hours later.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_AGAIN_S = 1.0
"""Seconds until the signal is repeated, in case other code swallowed the exception."""


@contextmanager
def while_read() -> Iterator[None]:
    """Raises ``ReaderGone`` in the block when the reader of stdout goes.

    Does nothing if stdout is not a pipe, or outside the main thread.
    """
    import os
    import signal
    import threading

    main = threading.main_thread()
    number = _pipe()
    if number is None or threading.current_thread() is not main or main.ident is None:
        yield
        return
    wake_r, wake_w = os.pipe()
    watcher = threading.Thread(target=_watch, args=(number, wake_r, main.ident), daemon=True)

    def gone(signum: int, _: object) -> None:
        # a connection that the other side has closed raises this signal, too
        if _has_no_reader(number):
            raise ReaderGone(signum)

    from torchx.cli._errors import ReaderGone

    before = signal.signal(signal.SIGPIPE, gone)
    try:
        watcher.start()
        yield
    finally:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the watcher may still send one
        os.close(wake_w)
        watcher.join()  # a thread that wakes while the interpreter ends can crash it
        os.close(wake_r)
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


def _watch(number: int, wake: int, main: int) -> None:
    """Signals the main thread while the pipe has no reader, until the other pipe is closed."""
    import select
    import signal

    watched = select.poll()
    watched.register(number, 0)  # errors are always reported: the reader has gone
    watched.register(wake, 0)
    woken = select.poll()
    woken.register(wake, 0)
    while wake not in dict(watched.poll()):
        signal.pthread_kill(main, signal.SIGPIPE)
        woken.poll(_AGAIN_S * 1000)


def _has_no_reader(number: int) -> bool:
    """Returns True if nobody can read the pipe any more."""
    import select

    poll = select.poll()
    poll.register(number, 0)
    return bool(poll.poll(0))
