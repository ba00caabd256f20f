"""Runs the programs of a backend, without a shell, and translates their errors."""

import os
import re
import signal
import subprocess
import threading
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType

from torchx._retry import PAUSES_S, passes, with_retries
from torchx._startup.dataclass import light_dataclass
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, CommandFailed, ProgramNotFound

logger = get_logger(__name__)

TIMEOUT_S = 60.0
SILENT_S = 3.0
"""Seconds after which a wait is reported to the user."""


@light_dataclass(frozen=True)
class BackendPrograms:
    """The programs by which one backend is reached.

    Args:
        backend: its name in messages.
        where: what to do if a program is missing.
        transient: returns True for text on stderr after which a retry may succeed.
    """

    backend: str
    where: str
    transient: Callable[[str], bool]

    def run(
        self, argv: Sequence[str], *, input: bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> str:
        """Runs a program once, without retries, and returns its standard output. Reports a long
        wait.

        Args:
            input: standard input of the program; none for ``None``.

        Raises:
            ProgramNotFound: if it is not on PATH.
            BackendUnavailable: if it times out, or reports that the backend is away.
            CommandFailed: for any other failure, with the program's message.
        """
        fed = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}

        def call() -> object:
            return subprocess.run(
                argv, capture_output=True, check=True, timeout=timeout_s, **fed
            ).stdout

        with _reported_if_slow(argv[0]):
            return self._translate_errors(argv[0], call)

    def ask(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = TIMEOUT_S,
        pauses_s: Iterable[float] = PAUSES_S,
        report: bool = False,
    ) -> str:
        """Returns the standard output of a read-only call; retries while the backend is away.

        Args:
            report: report a long wait, as ``run`` does.

        Raises:
            ProgramNotFound, BackendUnavailable, CommandFailed: like ``run``.
        """

        def call() -> object:
            return subprocess.check_output(
                argv,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_s,
            )

        def once() -> str:
            with _reported_if_slow(argv[0]) if report else nullcontext():
                return self._translate_errors(argv[0], call)

        return with_retries(once, pauses_s, Waiting().transient)

    def attach(self, argv: Sequence[str], stdin: int | None, stdout: int, stderr: int) -> int:
        """Runs a program on our terminal and returns its exit code as a shell reports it.

        Raises:
            ProgramNotFound: if it is not on PATH.
        """
        codes: list[int] = []

        def call() -> object:
            codes.append(run_attached(argv, stdin, stdout, stderr))
            return ""

        self._translate_errors(argv[0], call)
        return codes[0]

    def _translate_errors(self, program: str, call: Callable[[], object]) -> str:
        try:
            return _text(call())
        except FileNotFoundError:
            msg = f"`{program}` was not found: {self.where}"
            raise ProgramNotFound(msg) from None
        except OSError as err:
            msg = f"`{program}` cannot be run: {err.strerror}"
            raise BackendUnavailable(msg) from None
        except subprocess.TimeoutExpired as err:
            msg = (
                f"{self.backend} cannot be reached: `{program}` gave no answer "
                f"within {err.timeout:g} s"
            )
            raise BackendUnavailable(msg) from None
        except subprocess.CalledProcessError as err:
            stderr = _text(err.stderr)
            words = stderr_message(stderr or _text(err.stdout), program)
            if self.transient(stderr):
                msg = f"{self.backend} cannot be reached: `{program}` says: {words}"
                raise BackendUnavailable(msg) from None
            raise CommandFailed(program, err.returncode, words) from None


def run_attached(
    argv: Sequence[str],
    stdin: int | None,
    stdout: int,
    stderr: int,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> int:
    """Runs a program on these file descriptors and returns its exit code.

    Signals from the keyboard reach the program directly, because it is in the same process group;
    those sent to this process alone are passed on.

    Args:
        stdin: ``None`` for no input.
    """
    given = subprocess.DEVNULL if stdin is None else stdin
    with passing_on_signals() as child:
        process = subprocess.Popen(
            argv, stdin=given, stdout=stdout, stderr=stderr, env=env, cwd=cwd
        )
        child.append(process.pid)
        code = process.wait()
        child.clear()
    return 128 - code if code < 0 else code


@contextmanager
def passing_on_signals() -> Iterator[list[int]]:
    """Passes signals that would end this process on to the process in the list."""
    child: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield child
        return

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for pid in child:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def leave(_number: int, _frame: FrameType | None) -> None:
        """Ignores a signal that the terminal sends to both processes."""

    handlers = {signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}
    keys = {signal.SIGINT: leave, signal.SIGQUIT: leave}
    before = {n: signal.signal(n, handler) for n, handler in {**handlers, **keys}.items()}
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def _reported_if_slow(program: str) -> Iterator[None]:
    answered = allocate_lock()
    answered.acquire()

    def watch() -> None:
        if not answered.acquire(timeout=SILENT_S):
            logger.warning("waiting for `%s` to answer", program)

    start_new_thread(watch, ())  # `threading.Timer` takes ten times as long to start
    try:
        yield
    finally:
        answered.release()


class Waiting:
    """Reports once, after some seconds, that a backend is away and is being retried."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._reported = False

    def transient(self, err: Exception) -> bool:
        """Returns True if a retry may succeed; reports the retry."""
        if not passes(err):
            return False
        self.report(str(err))
        return True

    def report(self, words: str) -> None:
        """Logs the reason of the wait, once, and not in the first seconds."""
        if not self._reported and time.monotonic() - self._since >= SILENT_S:
            self._reported = True
            logger.warning("%s; trying again", words)


def stderr_message(text: str, program: str) -> str:
    r"""Returns the message of a program on one line, without the program's name.

    >>> stderr_message("sbatch: error: no\nsbatch: error: such partition\n", "sbatch")
    'no; such partition'
    """
    name = re.compile(rf"^{re.escape(program)}: (?:error: |fatal: )?")
    lines = (name.sub("", line).strip() for line in text.split("\n"))
    return "; ".join(line for line in lines if line)


def _text(output: object) -> str:
    if isinstance(output, bytes):
        return output.decode("utf-8", "replace")
    return str(output or "")
