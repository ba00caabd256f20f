"""Makes signals raise during a submission, so that it can be rolled back."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Lets SIGTERM raise ``SystemExit`` (128 + 15) inside, as SIGINT raises ``KeyboardInterrupt``.

    Does nothing outside the main thread, or if the program has its own handler. After the first
    one, SIGTERM is ignored until the end of the context, so that the rollback is not interrupted.
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
