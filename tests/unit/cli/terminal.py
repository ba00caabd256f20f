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
from dataclasses import dataclass

ESCAPES = re.compile(r"\033\[[0-9;:]*[A-Za-z]")
_SILENT_S = 60


@dataclass
class Screen:
    """What a command wrote to its terminal."""

    code: int
    raw: str
    """With escape sequences."""

    @property
    def text(self) -> str:
        """As it is read."""
        return ESCAPES.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        """Its lines, as they are read."""
        return self.text.splitlines()


def on_terminal(
    *argv: str, columns: int = 80, env: dict[str, str] | None = None, stdout: int | None = None
) -> Screen:
    """Runs the command line with a terminal as its streams.

    Args:
        stdout: a descriptor in place of the terminal.
    """
    return _run(["-m", "torchx.cli.main", *argv], columns, env, stdout)


def python_on_terminal(script: str, columns: int = 80, env: dict[str, str] | None = None) -> Screen:
    """Runs a script in such a terminal."""
    return _run(["-c", script], columns, env, None)


def _run(
    arguments: list[str], columns: int, env: dict[str, str] | None, stdout: int | None
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
    written = bytearray()
    while True:
        ready, _, _ = select.select([master], [], [], _SILENT_S)
        try:
            data = os.read(master, 65536) if ready else b""
        except OSError:  # the other side is closed
            data = b""
        if not data:
            break
        written += data
    os.close(master)
    return Screen(process.wait(_SILENT_S), written.decode().replace("\r\n", "\n"))
