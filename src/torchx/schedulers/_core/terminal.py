"""Connects the file descriptors of this process with a command that runs elsewhere."""

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
"""So many times Ctrl-C is passed on; the next one ends the conversation."""
_ENDING = ("SIGTERM", "SIGHUP")
_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class Remote(Protocol):
    """A command that runs elsewhere, on the other side of a connection."""

    def receive(self) -> tuple[int, bytes] | None:
        """What it prints next, on its stream 1 or 2; ``None`` once it has ended."""
        ...

    def send(self, data: bytes) -> None:
        """Gives it something to read."""
        ...

    def close_input(self) -> None:
        """Nothing more is to be read."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size now."""
        ...

    def signal(self, name: str) -> None:
        """Signals it and what it has started; ``name`` is like ``INT``."""
        ...


def converse(remote: Remote, request: ExecRequest) -> None:
    """Carries input, output, sizes and signals until the command has ended."""
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
    """Rows and columns of the terminal that the request is connected with."""
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
    """Sends what is typed or piped in; ends with the conversation."""
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
        logger.debug("input is not sent any more: %s", err)


def _control(controls: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    """Carries out what signal handlers, which must not wait, have asked for."""
    while (act := controls.get()) is not None:
        try:
            act()
        except (OSError, TorchXError) as err:
            logger.warning("the command could not be told: %s", err)


@contextmanager
def _raw(request: ExecRequest) -> Iterator[None]:
    """Keys go to the other terminal as they are, Ctrl-C as well."""
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
    """Ends the conversation such that the terminal becomes what it was."""
    raise SystemExit(128 + number)


@contextmanager
def _signals(
    remote: Remote,
    request: ExecRequest,
    controls: "queue.SimpleQueue[Callable[[], None] | None]",
) -> Iterator[None]:
    """Passes signals on, and changes of the size of the terminal."""

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
    if request.tty:  # keys go through the terminal; what ends this process ends the conversation
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
