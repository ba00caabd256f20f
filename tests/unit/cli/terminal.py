"""A terminal of any size around the command line, in a process of its own."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ESCAPES = re.compile(r"\033\[[0-9;:]*[A-Za-z]")
_SILENT_S = 60
_TORCHX = ["-m", "torchx.cli.main"]


Steps = Sequence[tuple[str, Callable[[], object]]]
"""Words, and what is done as soon as they are on the terminal; one after the other."""


@dataclass
class Screen:
    """What a command wrote to its terminal."""

    code: int
    raw: str
    """With escape sequences."""
    moments: list[str]
    """The same up to the words of each step."""

    @property
    def text(self) -> str:
        """As it is read."""
        return ESCAPES.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        """Its lines, as they are read."""
        return self.text.splitlines()

    @property
    def left(self) -> list[str]:
        """The lines that stay: what was written over is gone."""
        written = ESCAPES.sub("", self.raw.replace("\r\033[K", "\r"))
        return [line.rpartition("\r")[2] for line in written.rstrip("\n").split("\n")]


def on_terminal(
    *argv: str,
    columns: int = 80,
    env: dict[str, str] | None = None,
    stdout: int | None = None,
    steps: Steps = (),
) -> Screen:
    """Runs the command line with a terminal as its streams.

    Args:
        stdout: a descriptor in place of the terminal.
    """
    return _run([*_TORCHX, *argv], columns, env, stdout, steps)


def python_on_terminal(script: str, columns: int = 80, env: dict[str, str] | None = None) -> Screen:
    """Runs a script in such a terminal."""
    return _run(["-c", script], columns, env, None)


def off_terminal(*argv: str, env: dict[str, str] | None = None, steps: Steps = ()) -> Screen:
    """Runs the command line with one pipe as its output, as in a log file."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, *_TORCHX, *argv],
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=write,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})},
        start_new_session=True,
    )
    os.close(write)
    return _watch(process, read, steps)


def _run(
    arguments: list[str],
    columns: int,
    env: dict[str, str] | None,
    stdout: int | None,
    steps: Steps = (),
) -> Screen:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env={**clean, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(env or {})},
        start_new_session=True,
    )
    os.close(slave)
    return _watch(process, master, steps)


def _watch(process: "subprocess.Popen[bytes]", source: int, steps: Steps) -> Screen:
    """Reads until the other side is closed, and carries out the steps when their words come."""
    written = bytearray()
    moments: list[str] = []
    while True:
        ready, _, _ = select.select([source], [], [], _SILENT_S)
        try:
            data = os.read(source, 65536) if ready else b""
        except OSError:  # the other side is closed
            data = b""
        if not data:
            break
        written += data
        moments += _due(_read(written), len(moments), steps)
    os.close(source)
    return Screen(process.wait(_SILENT_S), _read(written), moments)


def _due(raw: str, done: int, steps: Steps) -> list[str]:
    moments = []
    for words, action in steps[done:]:
        if words not in ESCAPES.sub("", raw):
            break
        action()
        moments.append(raw)
    return moments


def _read(written: bytearray) -> str:
    return written.decode(errors="ignore").replace("\r\n", "\n")
