"""Shows changes: redrawn in place on a terminal, as one line per change elsewhere."""

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate

from torchx.cli import _look, _output
from torchx.cli._status_view import status_text
from torchx.runner import Runner
from torchx.schedulers.api import AppSnapshot, ListAppResponse, describe_failure, one_look
from torchx.specs import AppState, AppStatus

_LINES = 24
_COLUMNS = 80


class Screen:
    """Text that is redrawn in place on a terminal, and appended elsewhere."""

    def __init__(self) -> None:
        self._shown = 0
        self._beside = 0
        self.redraws = _look.is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"

    def show(self, text: str) -> None:
        """Draws the text in place of the last one."""
        lines = text.split("\n")
        rows, columns = _size()
        heights = [_height(line, columns) for line in lines]
        if sum(heights) > rows - 1:
            shown = sum(total <= rows - 2 for total in accumulate(heights))
            lines = [*lines[:shown], f"... and {len(lines) - shown} more lines"]
            heights = [*heights[:shown], 1]
        in_place = self._shown and self._beside == _output.lines_beside()
        up = f"\033[{self._shown}F\033[J" if in_place else ""  # else that is no longer the last
        self._shown, self._beside = sum(heights), _output.lines_beside()
        _output.out(up + "\n".join(lines))


def watch_status(runner: Runner, handle: str, roles: list[str] | None) -> AppStatus | None:
    """Shows the state of an app until it has ended; returns the last state."""
    screen = Screen()
    last: AppSnapshot | None = None
    status: AppStatus | None = None
    for snapshot in runner.watch(handle):
        if screen.redraws:
            with one_look(fresh=True):
                status = runner.status(handle)
                if status is not None:
                    screen.show(status_text(runner, handle, status, roles))
        else:
            for line in changes(last, snapshot, roles):
                _output.out(line)
        last = snapshot
    return runner.status(handle) if status is None else status


def changes(
    last: AppSnapshot | None, now: AppSnapshot, roles: list[str] | None = None
) -> list[str]:
    """Returns a line for the app, if its state or message changed, and for each changed replica."""
    lines = []
    before = {} if last is None else {replica.key: replica for replica in last.replicas}
    for replica in now.replicas:
        if roles is not None and replica.role not in roles:
            continue
        old = before.get(replica.key)
        if old is not None and (old.state, old.attempt) == (replica.state, replica.attempt):
            continue
        text = f"{now.app_id} {replica.role}/{replica.replica} {replica.state.name}"
        if replica.attempt:
            text += f" attempt {replica.attempt}"
        if replica.state is AppState.FAILED:
            text += f" {replica.ending}"
        elif replica.reason:
            text += f" {replica.reason}"
        lines.append(text)
    if last is None or (last.state, _words(last)) != (now.state, _words(now)):
        lines.append(f"{now.app_id} {now.state.name} {_words(now)}".rstrip())
    return lines


def _words(snapshot: AppSnapshot) -> str:
    if snapshot.fatal is not None and not snapshot.cancelled:
        return describe_failure(snapshot.fatal)
    return "" if snapshot.message == snapshot.state.name else snapshot.message


def changed_rows(
    last: Sequence[ListAppResponse] | None, now: Iterable[ListAppResponse]
) -> list[tuple[str, str]]:
    """Returns handle and state of each app that is new, has another state, or is gone."""
    before = {row.app_handle: row.state for row in last or ()}
    rows = [*now]
    found = [
        (row.app_handle, row.state.name)
        for row in rows
        if before.get(row.app_handle) is not row.state
    ]
    left = {row.app_handle for row in rows}
    return found + [(handle, "DELETED") for handle in before if handle not in left]


def _size() -> tuple[int, int]:
    """Rows and columns of the terminal as it is, whatever ``COLUMNS`` says."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        columns = rows = 0
    return rows or _LINES, columns or _COLUMNS


def _height(line: str, columns: int) -> int:
    """Rows that a line takes, which the terminal breaks if it is too long."""
    return max(1, -(-_look.printed_width(line) // columns))
