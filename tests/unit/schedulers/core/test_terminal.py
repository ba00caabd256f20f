"""Carries what is typed, printed and signalled to a command that runs elsewhere, and back."""

import os
import queue
import signal
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from torchx.schedulers._core.executing import ExecRequest
from torchx.schedulers._core.terminal import converse, terminal_size
from torchx.testing._contract.inside import Terminal


class Elsewhere:
    """A command on the other side: it prints what the test puts in, and keeps what it is told."""

    def __init__(self) -> None:
        self.printed: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self.told: list[object] = []
        self.news = threading.Condition()

    def receive(self) -> tuple[int, bytes] | None:
        while True:  # Python handles no signal that comes right before it waits without an end
            try:
                return self.printed.get(timeout=0.1)
            except queue.Empty:
                continue

    def _tell(self, what: object) -> None:
        with self.news:
            self.told.append(what)
            self.news.notify_all()

    def send(self, data: bytes) -> None:
        self._tell(data)

    def close_input(self) -> None:
        self._tell("end of input")

    def resize(self, rows: int, columns: int) -> None:
        self._tell((rows, columns))

    def signal(self, name: str) -> None:
        self._tell(name)

    def until(self, happened: Callable[[list[object]], bool]) -> None:
        """Waits until the test's condition is true of what it was told."""
        with self.news:
            assert self.news.wait_for(lambda: happened(self.told), 30)


def beside(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_streams_and_the_end_of_the_input(tmp_path: Path) -> None:
    elsewhere = Elsewhere()
    given_r, given_w = os.pipe()
    flags = os.O_WRONLY | os.O_CREAT
    out, err = (os.open(tmp_path / name, flags, 0o600) for name in ("out", "err"))

    def drive() -> None:
        os.write(given_w, b"hello")
        elsewhere.until(lambda told: b"hello" in told)
        os.close(given_w)
        elsewhere.until(lambda told: "end of input" in told)
        elsewhere.printed.put((2, b"told"))
        elsewhere.printed.put((1, b"printed"))
        elsewhere.printed.put(None)

    thread = beside(drive)
    converse(elsewhere, ExecRequest(("x",), False, given_r, out, err))
    thread.join()
    assert (tmp_path / "out").read_bytes() == b"printed"
    assert (tmp_path / "err").read_bytes() == b"told"
    for fd in (given_r, out, err):
        os.close(fd)


def test_signals_are_passed_on_and_handlers_put_back() -> None:
    elsewhere = Elsewhere()
    before = signal.getsignal(signal.SIGTERM)

    def drive() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        elsewhere.until(lambda told: "TERM" in told)
        elsewhere.printed.put(None)

    elsewhere.printed.put((1, b""))
    thread = beside(lambda: (wait_for_handler(before), drive())[1])
    converse(elsewhere, ExecRequest(("x",)))
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_again_and_again_ends_the_conversation() -> None:
    elsewhere = Elsewhere()
    before = signal.getsignal(signal.SIGINT)

    def drive() -> None:
        wait_for_handler(before, signal.SIGINT)
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGINT)
            elsewhere.until(lambda told, count=count: told.count("INT") == count)
        os.kill(os.getpid(), signal.SIGINT)
        elsewhere.printed.put((1, b""))

    thread = beside(drive)
    with pytest.raises(KeyboardInterrupt):
        converse(elsewhere, ExecRequest(("x",)))
    thread.join()


def test_a_terminal_is_raw_meanwhile_and_told_of_its_size() -> None:
    elsewhere, shown = Elsewhere(), Terminal()
    before = termios.tcgetattr(shown.slave)
    local: list[int] = []

    def drive() -> None:
        elsewhere.until(lambda told: (33, 111) in told)
        shown.type("\x03")
        elsewhere.until(lambda told: b"\x03" in told)
        local.append(termios.tcgetattr(shown.slave)[3] & (termios.ICANON | termios.ISIG))
        shown.resize(10, 20)
        os.kill(os.getpid(), signal.SIGWINCH)
        elsewhere.until(lambda told: (10, 20) in told)
        elsewhere.printed.put(None)

    thread = beside(drive)
    request = ExecRequest(("x",), True, shown.slave, shown.slave, shown.slave)
    converse(elsewhere, request)
    thread.join()
    assert local == [0]
    assert termios.tcgetattr(shown.slave) == before
    shown.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_this_process_leaves_the_terminal_as_it_was(number: signal.Signals) -> None:
    elsewhere, shown = Elsewhere(), Terminal()
    before = termios.tcgetattr(shown.slave)

    def drive() -> None:
        elsewhere.until(lambda told: (33, 111) in told)
        os.kill(os.getpid(), number)
        elsewhere.printed.put((1, b""))

    thread = beside(drive)
    request = ExecRequest(("x",), True, shown.slave, shown.slave, shown.slave)
    with pytest.raises(SystemExit) as ended:
        converse(elsewhere, request)
    thread.join()
    assert ended.value.code == 128 + number
    assert termios.tcgetattr(shown.slave) == before
    shown.close()


def test_without_a_terminal_there_is_a_usual_size() -> None:
    read, write = os.pipe()
    assert terminal_size(ExecRequest(("x",), True, read, write, write)) == (24, 80)
    os.close(read)
    os.close(write)


def wait_for_handler(before: object, number: signal.Signals = signal.SIGTERM) -> None:
    """Waits until the conversation has begun."""
    started = threading.Event()
    for _ in range(3000):
        if signal.getsignal(number) is not before:
            return
        started.wait(0.01)
    raise AssertionError("no handler was set")
