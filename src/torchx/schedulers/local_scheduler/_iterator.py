"""The generic follower of a log file, for schedulers without their own, and for subclasses."""

import time
from collections.abc import Iterator
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from torchx.schedulers.api import split_lines_iterator
from torchx.specs.api import is_terminal

if TYPE_CHECKING:
    from torchx.schedulers.api import Scheduler

POLL_S = 0.1
BLOCK_CHARS = 64_000


class LogIterator:
    """Yields the lines of a file that grows until its app is finished.

    NeMo-Run subclasses this, skips ``__init__``, sets the attributes itself and overrides
    ``_check_finished``, which may change ``_log_file``.

    Args:
        app_id: app whose end ends the iteration.
        log_file: path; the file need not exist yet.
        scheduler: asked with ``describe`` for the app's state.
        should_tail: if False, only the current content is read.
    """

    def __init__(
        self, app_id: str, log_file: str, scheduler: "Scheduler[Any]", should_tail: bool = True
    ) -> None:
        self._app_id = app_id
        self._log_file = log_file
        self._log_fp: TextIOWrapper | None = None
        self._scheduler = scheduler
        self._app_finished = not should_tail

    def _check_finished(self) -> None:
        if self._app_finished:
            return
        description = self._scheduler.describe(self._app_id)
        if description is None or is_terminal(description.state):
            self._app_finished = True

    def __iter__(self) -> Iterator[str]:
        import os

        self._check_finished()
        while not os.path.isfile(self._log_file):
            if self._app_finished:
                msg = (
                    f"app `{self._app_id}` is finished and has no log file `{self._log_file}`; "
                    "was it removed, or written elsewhere (`log_dir`)?"
                )
                raise RuntimeError(msg)
            time.sleep(POLL_S)
            self._check_finished()
        self._log_fp = open(  # noqa: SIM115 - closed when the iteration ends
            self._log_file, newline="\n", encoding="utf-8", errors="replace"
        )
        return iter(split_lines_iterator(_whole_lines(self)))

    def __next__(self) -> str:
        """Returns the next piece of text: reads, then checks for the app's end, then waits."""
        assert self._log_fp is not None
        while True:
            piece = self._log_fp.read(BLOCK_CHARS)
            if piece:
                return piece
            if self._app_finished:
                piece = self._log_fp.read(BLOCK_CHARS)
                if piece:
                    return piece
                self._log_fp.close()
                raise StopIteration
            self._check_finished()
            if not self._app_finished:
                time.sleep(POLL_S)


def _whole_lines(pieces: LogIterator) -> Iterator[str]:
    """Holds back an unfinished line until the rest of it arrives."""
    held = ""
    while True:
        try:
            piece = next(pieces)
        except StopIteration:
            break
        text = held + piece
        cut = text.rfind("\n") + 1
        held = text[cut:]
        if cut:
            yield text[:cut]
    if held:
        yield held
