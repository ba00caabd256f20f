"""A progress line on a terminal, which disappears at the end."""

import atexit
import threading
import time
from typing import TextIO

from torchx.cli._look import Look, duration

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "-\\|/"
_FRAME_S = 0.12
_ERASE = "\r\033[K"
_SHOWN_AFTER_S = 1.0
"""Seconds after which the elapsed time is shown."""


class Progress:
    """Shows and clears the line; usable from several threads."""

    def __init__(self, stream: TextIO) -> None:
        self._look = Look(stream)
        self._stream = stream
        self._frames = _FRAMES if self._look.sign("bar") == "│" else _ASCII_FRAMES
        self._lock = threading.Lock()
        self._text = ""
        self._began = 0.0
        self._shown = threading.Event()

    def show(self, text: str) -> None:
        """Shows the current step."""
        with self._lock:
            begins = not self._text
            self._text = " ".join(text.split())
            if begins:
                atexit.register(self.clear)  # whatever ends the process, the line goes
                self._began = time.monotonic()
                self._shown = threading.Event()
                spin = threading.Thread(target=self._spin, args=(self._shown,), daemon=True)
            self._draw(0)
        if begins:
            spin.start()

    def clear(self) -> float:
        """Clears the line, and returns the seconds since it appeared; 0 if there is none."""
        with self._lock:
            if not self._text:
                return 0.0
            self._text = ""
            self._shown.set()
            atexit.unregister(self.clear)
            self._write(_ERASE)
            return time.monotonic() - self._began

    def _spin(self, ended: threading.Event) -> None:
        number = 0
        while not ended.wait(_FRAME_S):
            number += 1
            with self._lock:
                if self._text and not ended.is_set():
                    self._draw(number)

    def _draw(self, number: int) -> None:
        frame = self._frames[number % len(self._frames)]
        took_s = time.monotonic() - self._began
        took = f" {duration(took_s)}" if took_s >= _SHOWN_AFTER_S else ""
        text = self._look.cut(self._text, self._look.width - len(took) - 3)
        self._write(f"{_ERASE}{frame} {self._look.dim(text + took)}")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # closed, or its reader has gone
            return
