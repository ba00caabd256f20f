"""Connects the file descriptors of this process with a remote command."""

import os
import queue
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from torchx._files import write_all
from torchx._startup.lazy_logger import get_logger
from torchx.errors import TorchXError

from .executing import ExecRequest

logger = get_logger(__name__)

_CHUNK = 65536
_DEFAULT_SIZE = (24, 80)
_MOST_INTERRUPTS = 2
"""Number of times that Ctrl-C is passed on; the next one ends the session."""
_ENDING = ("SIGTERM", "SIGHUP")
_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class Remote(Protocol):
    """A remote command, on the other side of a connection."""

    def receive(self) -> tuple[int, bytes] | None:
        """Returns the next output, on stream 1 or 2; ``None`` once the command has ended."""
        ...

    def send(self, data: bytes) -> None:
        """Sends data to its standard input."""
        ...

    def close_input(self) -> None:
        """Closes its standard input."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of its terminal."""
        ...

    def signal(self, name: str) -> None:
        """Signals the command and its child processes; ``name`` is like ``INT``."""
        ...


def converse(remote: Remote, request: ExecRequest) -> None:
    """Forwards input, output, sizes and signals until the command has ended."""
    controls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
    wake_r, wake_w = os.pipe()
    threads = [threading.Thread(target=_control, args=(controls,), name="control", daemon=True)]
    if request.stdin is not None:
        feed = threading.Thread(
            target=_feed, args=(remote, request.stdin, wake_r), name="stdin", daemon=True
        )
        threads.append(feed)
    try:
        with _raw(request), _signals(remote, request, controls):
            for thread in threads:
                thread.start()
            _print(remote, request)
    finally:
        os.write(wake_w, b"x")
        controls.put(None)
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        os.close(wake_r)
        os.close(wake_w)


def terminal_size(request: ExecRequest) -> tuple[int, int]:
    """Returns rows and columns of the request's terminal."""
    for fd in (request.stdout, request.stdin):
        try:
            size = os.get_terminal_size(fd if fd is not None else -1)
        except (OSError, ValueError):
            continue
        if size.lines and size.columns:
            return size.lines, size.columns
    return _DEFAULT_SIZE


def _print(remote: Remote, request: ExecRequest) -> None:
    while (part := remote.receive()) is not None:
        stream, data = part
        write_all(request.stderr if stream == 2 else request.stdout, data)


def _feed(remote: Remote, stdin: int, wake: int) -> None:
    """Sends what is typed or piped in, until the session ends."""
    try:
        while True:
            ready, _, _ = select.select([stdin, wake], [], [])
            if wake in ready:
                return
            data = os.read(stdin, _CHUNK)
            if not data:
                remote.close_input()
                return
            remote.send(data)
    except (OSError, TorchXError) as err:  # the command has ended, which the other side reports
        logger.debug("input is no longer sent: %s", err)


def _control(controls: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    """Runs the actions that signal handlers, which must not block, have queued."""
    while (act := controls.get()) is not None:
        try:
            act()
        except (OSError, TorchXError) as err:
            logger.warning("the signal could not be sent to the command: %s", err)


@contextmanager
def _raw(request: ExecRequest) -> Iterator[None]:
    """Switches our terminal to raw mode: all keys go to the remote one, also Ctrl-C."""
    if not request.tty or request.stdin is None or not os.isatty(request.stdin):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(request.stdin)
    tty.setraw(request.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(request.stdin, termios.TCSADRAIN, before)


def _leave(number: int, _frame: FrameType | None) -> None:
    """Ends the session and restores the terminal."""
    raise SystemExit(128 + number)


@contextmanager
def _signals(
    remote: Remote,
    request: ExecRequest,
    controls: "queue.SimpleQueue[Callable[[], None] | None]",
) -> Iterator[None]:
    """Passes signals and changes of the terminal's size on."""

    def resize() -> None:
        remote.resize(*terminal_size(request))

    interrupts: list[int] = []

    def passed_on(name: str) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, _frame: FrameType | None) -> None:
            if number == signal.SIGINT:
                interrupts.append(number)
                if len(interrupts) > _MOST_INTERRUPTS:  # it does not end: the user wants out
                    raise KeyboardInterrupt
            controls.put(lambda: remote.signal(name))

        return handle

    if request.tty:
        controls.put(resize)
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return
    handlers: dict[int, Callable[[int, FrameType | None], None]]
    if request.tty:  # keys go through the terminal; signals that end this process end the session
        handlers = {getattr(signal, name): _leave for name in _ENDING}
        handlers[signal.SIGWINCH] = lambda _number, _frame: controls.put(resize)
    else:
        handlers = {getattr(signal, name): passed_on(name[3:]) for name in _FORWARDED}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
