"""Waits for the job of ``torchx run``, with its logs on the screen."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torchx.cli import _output
from torchx.runner import Runner

if TYPE_CHECKING:
    from threading import Thread


@contextmanager
def terminated_as_exception() -> Iterator[None]:
    """Turns SIGTERM into an exception while waiting, where the scheduler has not done so."""
    import signal
    import threading

    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    from torchx.cli import _errors

    def interrupt(number: int, _frame: object) -> None:
        raise _errors.Interrupted(number)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def log_thread(runner: Runner, handle: str, tee: bool) -> "Thread":
    """Returns an unstarted thread that writes the logs of the job to stderr."""
    if tee:
        from torchx.util.log_tee_helpers import tee_logs

        return tee_logs(
            dst=sys.stderr,
            app_handle=handle,
            regex=None,
            runner=runner,
            should_tail=True,
            streams=None,
            colorize=_output.colored(sys.stderr),
        )
    import threading

    from torchx._outages import reported_elsewhere
    from torchx.cli.cmd_log import stream_logs

    def follow() -> None:
        reported_elsewhere.set(True)  # by the thread that waits for the end of the job
        try:
            stream_logs(sys.stderr, runner, handle)
        except Exception as err:  # noqa: BLE001 - the job matters more than its log on the terminal
            _output.log().warning("the logs could not be followed to the end: %s", err)
            _output.log().debug("traceback", exc_info=err)

    return threading.Thread(target=follow, name="log", daemon=True)
