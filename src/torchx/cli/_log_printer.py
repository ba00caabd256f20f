"""Writes log lines prefixed with the name of their replica."""

import sys
import threading
from collections.abc import Sequence
from typing import TextIO

from torchx.cli import _output
from torchx.cli._look import REPLICA_COLORS, Look


def prefix_line(prefix: str, line: str) -> str:
    r"""The text with the prefix before each line, also after each ``\r`` (progress bars).

    >>> prefix_line("w/0 ", "a\nb\n")
    'w/0 a\nw/0 b\n'
    """
    line = _prefixed_returns(prefix, line)
    if "\n" in line:
        line = line[:-1].replace("\n", f"\n{prefix}") + line[-1]
    return line if line.startswith("\r") else prefix + line


def _prefixed_returns(prefix: str, text: str) -> str:
    if "\r" not in text:
        return text
    return text.replace("\r", f"\r{prefix}").replace(f"\r{prefix}\n", "\r\n")


class LogPrinter:
    """Writes blocks of whole lines to one stream; usable from several threads."""

    def __init__(
        self,
        file: TextIO,
        as_json: bool = False,
        replicas: "Sequence[tuple[str, int]]" = (),
    ) -> None:
        self._file = file
        self._look = Look(file)
        self.expect(replicas)
        self._as_json = as_json
        self._colors = _output.palette(file)
        self._prefixes: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()
        self._unfinished: tuple[str, int, int | None] | None = None
        """Replica whose last line has no newline yet."""

    @property
    def is_terminal(self) -> bool:
        """True if the output is a terminal."""
        return self._look.terminal and not self._as_json

    def expect(self, replicas: "Sequence[tuple[str, int]]") -> None:
        """Announces the replicas, to assign colours and align their names."""
        self._order = {key: i for i, key in enumerate(replicas)}
        self._name_width = max((len(f"{role}/{k}") for role, k in replicas), default=0)

    def write(self, role: str, replica: int, attempt: int | None, text: str) -> None:
        """Writes the block at once. Raises `BrokenPipeError` if the reader has gone."""
        if not text:
            return
        if self._as_json:
            with self._lock:
                self._put(_json_lines(role, replica, attempt, text))
            return
        with self._lock:
            key = (role, replica, attempt)
            prefix = self._prefix((role, replica))
            if self._unfinished == key:  # a very long line, or one still being written
                head, newline, text = text.partition("\n")
                self._put(_prefixed_returns(prefix, head + newline))
                self._unfinished = None if newline else key
            if not text:
                return
            text = prefix_line(prefix, text)
            self._put(f"\n{text}" if self._unfinished else text)  # never two replicas on one line
            self._unfinished = None if text.endswith("\n") else key

    def finish(self) -> None:
        """Ends an unfinished last line, so that later output starts on a new one."""
        with self._lock:
            if self._unfinished is not None:
                self._unfinished = None
                self._put("\n")

    def abandon(self) -> None:
        """Discards further output after the reader has gone, so that the process exits quietly."""
        if self._file is sys.stdout:
            _output.close_stdout()

    def _put(self, text: str) -> None:
        if self._look.terminal:
            _output.make_room()
        _output.write(self._file, text)

    def _prefix(self, key: tuple[str, int]) -> str:
        prefix = self._prefixes.get(key)
        if prefix is None:
            if self._look.terminal:
                prefix = self._terminal_prefix(key)
            else:
                prefix = f"{self._colors.green}{key[0]}/{key[1]}{self._colors.endc} "
            self._prefixes[key] = prefix
        return prefix

    def _terminal_prefix(self, key: tuple[str, int]) -> str:
        """Returns the replica's name in its colour, padded to a common width, and a thin bar."""
        name = f"{key[0]}/{key[1]}"
        number = self._order.get(key)
        if number is None:  # by name, so that the colour is the same next time
            number = sum(name.encode())
        text = name.ljust(self._name_width)
        if self._colors.endc:
            color = REPLICA_COLORS[number % len(REPLICA_COLORS)]
            text = f"\033[{color}m{text}{self._colors.endc}"
        return f"{text} {self._look.dim(self._look.sign('bar'))} "


def _json_lines(role: str, replica: int, attempt: int | None, text: str) -> str:
    import json

    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return "".join(
        json.dumps({"role": role, "replica": replica, "attempt": attempt, "line": line}) + "\n"
        for line in lines
    )
