"""What ends a launcher in the middle of a submission raises there, so that it can be taken back."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Lets SIGTERM raise ``SystemExit`` (128 + 15) inside, as SIGINT raises ``KeyboardInterrupt``.

    Nothing is done in other threads than the main one, and where the program has a handler of its
    own. Once it has come, SIGTERM is ignored until the end of the context: what takes a submission
    back is not cut short.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
