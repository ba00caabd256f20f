"""Runs a program until it ends, a time limit passes, or a file appears.

For programs that do not end by themselves, such as TensorBoard beside a trainer::

    python -m torchx.apps.utils.process_monitor --exit_on_file s3://bucket/done -- tensorboard ...
"""

import argparse
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from torchx._filesystem import filesystem
from torchx.errors import InvalidInput, TorchXError

TIMEOUT_EXIT_CODE = 34
"""Exit code if the time limit passed before the program was started."""

CANNOT_START_EXIT_CODE = 127
"""Exit code if the program could not be started, as a shell's."""

_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def parse_args(argv: list[str]) -> argparse.Namespace:
    """The options, with the program as ``entrypoint`` and its arguments as ``args``."""
    parser = argparse.ArgumentParser(
        prog="process_monitor",
        usage="%(prog)s [options] [--] entrypoint [args ...]",
        description="runs a program until it ends, a time limit passes, or a file appears",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        help="seconds after which the program is ended, those of waiting for --start_on_file"
        " included; no limit if not given",
    )
    parser.add_argument(
        "--start_on_file",
        metavar="URL",
        help="path or URL of a file that must exist before the program is started",
    )
    parser.add_argument(
        "--exit_on_file",
        metavar="URL",
        help="path or URL of a file; once it exists the program is ended",
    )
    parser.add_argument(
        "--poll_rate",
        type=_positive_seconds,
        default=5,
        metavar="S",
        help="seconds between looks at a file (default: %(default)s)",
    )
    parser.add_argument(
        "--kill_timeout",
        type=_seconds,
        default=60,
        metavar="S",
        help="seconds that the program has to end before it is killed (default: %(default)s)",
    )
    options, command = _split(argv)
    args = parser.parse_args(options)
    if not command:
        parser.error("the program to run is missing, put it behind the options")
    args.entrypoint, args.args = command[0], command[1:]
    return args


def main(argv: list[str] | None = None) -> None:
    """Command line of the monitor; ends with ``SystemExit`` and the program's return code.

    A program that a signal ended has the negative number of that signal, which a shell shows as
    256 less that number (241 for ``SIGTERM``).
    """
    args = parse_args(sys.argv[1:] if argv is None else argv)
    try:
        code = monitor(
            [args.entrypoint, *args.args],
            timeout=args.timeout,
            start_on_file=args.start_on_file or None,
            exit_on_file=args.exit_on_file or None,
            poll_rate=args.poll_rate,
            kill_timeout=args.kill_timeout,
        )
    except TorchXError as err:
        sys.stderr.write(f"process_monitor: {err}\n")
        code = CANNOT_START_EXIT_CODE
    raise SystemExit(code)


def monitor(
    command: list[str],
    *,
    timeout: float | None = None,
    start_on_file: str | None = None,
    exit_on_file: str | None = None,
    poll_rate: float = 5,
    kill_timeout: float = 60,
) -> int:
    """Runs the command and gives back its return code. For the main thread only.

    The program has a process group of its own. ``SIGTERM``, ``SIGINT`` and ``SIGHUP`` sent to the
    monitor end it as the time limit does: the group gets ``SIGTERM`` and, after ``kill_timeout``
    seconds, ``SIGKILL``.

    Args:
        timeout: seconds after which the program is ended; ``None`` for no limit.
        start_on_file: path or URL of a file to wait for; ``None`` starts at once.
        exit_on_file: path or URL of the file that ends the program.
        poll_rate: seconds between looks at a file.
        kill_timeout: seconds between ``SIGTERM`` and ``SIGKILL``.

    Returns:
        ``TIMEOUT_EXIT_CODE`` if the limit passed before the start; 128 and the signal's number if
        a signal came before it.

    Raises:
        InvalidInput: if the program cannot be started, or no file system has such a URL.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    # resolved first: a bad URL is reported before anything runs
    may_start = _existence_check(start_on_file) if start_on_file else None
    must_exit = _existence_check(exit_on_file) if exit_on_file else None
    with _Wakeups() as wakeups:
        if may_start:
            with _FileWatch(may_start, poll_rate, wakeups) as watch:
                while not watch.found and not wakeups.end_signal:
                    if time.monotonic() >= deadline:
                        _say("reached timeout before launching, terminating...")
                        return TIMEOUT_EXIT_CODE
                    wakeups.wait(deadline)
        if wakeups.end_signal:
            return 128 + wakeups.end_signal
        process = _start(command)
        try:
            return _supervise(
                process, wakeups, deadline, must_exit, exit_on_file, poll_rate, kill_timeout
            )
        except BaseException:
            _signal_group(process, signal.SIGKILL)
            process.wait()
            raise


def _supervise(
    process: "subprocess.Popen[bytes]",
    wakeups: "_Wakeups",
    deadline: float,
    must_exit: Callable[[], bool] | None,
    exit_on_file: str | None,
    poll_rate: float,
    kill_timeout: float,
) -> int:
    with _FileWatch(must_exit, poll_rate, wakeups) as watch:
        while (code := process.poll()) is None:
            if wakeups.end_signal:
                _say(f"received {signal.Signals(wakeups.end_signal).name}, terminating...")
            elif watch.found:
                _say(f"{exit_on_file} exists, terminating...")
            elif time.monotonic() >= deadline:
                _say("reached timeout, terminating...")
            else:
                wakeups.wait(deadline)
                continue
            return _end(process, wakeups, kill_timeout)
        return code


def _end(process: "subprocess.Popen[bytes]", wakeups: "_Wakeups", kill_timeout: float) -> int:
    _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + kill_timeout
    while (code := process.poll()) is None:
        if time.monotonic() >= deadline:
            _say("reached safe termination timeout, killing...")
            break
        wakeups.wait(deadline)
    _signal_group(process, signal.SIGKILL)  # also what the program itself started and left
    return process.wait() if code is None else code


def _start(command: list[str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(command, start_new_session=True)
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        msg = (
            f"cannot start `{command[0]}`: {reason}; give a program that is on PATH or the path"
            " of an executable file"
        )
        raise InvalidInput(msg) from None


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # all ended; macOS raises the latter for zombies
        pass


def _existence_check(url: str) -> Callable[[], bool]:
    fs, path = filesystem(url)

    def exists() -> bool:
        fs.invalidate_cache(path)  # else some file systems never see what others write
        return bool(fs.exists(path))

    return exists


class _FileWatch:
    """Polls for a file in a thread, so that a slow file system delays nothing else."""

    def __init__(
        self, exists: Callable[[], bool] | None, poll_rate: float, wakeups: "_Wakeups"
    ) -> None:
        self.found = False
        self._exists = exists
        self._poll_rate = poll_rate
        self._wakeups = wakeups
        self._closed = threading.Event()

    def __enter__(self) -> "_FileWatch":
        if self._exists:
            threading.Thread(target=self._look, args=(self._exists,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _look(self, exists: Callable[[], bool]) -> None:
        while not self._closed.is_set():
            try:
                self.found = exists()
            except Exception as err:  # noqa: BLE001 - any backend's errors; it may recover
                _say(f"cannot look for the file, will try again: {err}")
            if self.found:
                self._wakeups.wake()
                return
            self._closed.wait(self._poll_rate)


class _Wakeups:
    """Waits for signals, the end of a child among them, and for other threads.

    It uses a socket: the kernel wakes its reader at once, and no signal is lost between a check and
    the wait.
    """

    def __init__(self) -> None:
        self.end_signal = 0

    def __enter__(self) -> "_Wakeups":
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old = {}
        for number in (signal.SIGCHLD, *_END_SIGNALS):
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._reader.close()
        self._writer.close()

    def wake(self) -> None:
        """Ends the current wait, or else the next one; for other threads."""
        try:
            self._writer.send(b"\0")
        except OSError:  # full, so the reader wakes anyway; or closed, so nobody waits
            pass

    def wait(self, deadline: float) -> None:
        """Returns at the deadline (of the monotonic clock, may be infinite) or before."""
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([self._reader], [], [], left)
        if ready:
            self._reader.recv(4096)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.end_signal = self.end_signal or number


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """The monitor's options, each with one value, and the program's command line.

    Not with argparse, whose versions disagree on which ``--`` belong to the program.
    """
    at = 0
    while at < len(argv):
        token = argv[at]
        if token == "--":
            return argv[:at], argv[at + 1 :]
        if not token.startswith("-"):
            break
        at += 1 if "=" in token or token in ("-h", "--help") else 2
    return argv[:at], argv[at:]


def _seconds(text: str) -> float:
    value = float(text)
    if not value >= 0:  # NaN as well
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of seconds, give 0 or more")
    return value


def _positive_seconds(text: str) -> float:
    value = _seconds(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"`{text}` is no interval, give seconds above 0")
    return value


def _say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
