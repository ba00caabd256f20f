"""The record of one job on disk: an append-only journal and a log index, and how to fold them.

A journal line is a JSON array ``[kind, time_ns, ...]`` that is written with one ``write``: a
reader never sees half an event but as the last, unterminated line, which it ignores.

| kind | fields after the time |
|---|---|
| ``supervised`` | host, boot id, supervisor pid, its start ticks, guard pid, its start ticks |
| ``start`` | role index, replica, attempt, pid, start ticks |
| ``exit`` | role index, replica, attempt, exit code (negative: killed by that signal) |
| ``restart`` | policy name, role index, replica, restarts so far |
| ``state`` | state name, message |

A log index (``combined.idx`` beside ``combined.log``) holds fixed-size records, one for each
batch of whole lines, in the order in which they were written.
"""

import os
import time

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from typing import Any

TERMINAL = frozenset(("SUCCEEDED", "FAILED", "CANCELLED"))

INDEX_RECORD_BYTES = 40
"""Five little-endian unsigned 64-bit integers: time in ns since the epoch, stream, lines of that
stream so far, end offset in the stream's file, end offset in ``combined.log``."""
STREAM_STDOUT = 0
STREAM_STDERR = 1
STREAM_END = 2
"""The last record of a complete log: its lines field holds the total of both streams."""

_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", **{i: f"\\u{i:04x}" for i in range(32)}}


def dumps(value: object) -> str:
    """Renders plain data as JSON, without the ``json`` module, which costs start-up time."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        return f'"{text.translate(_ESCAPES)}"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dumps(k)}: {dumps(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(dumps, value)) + "]"
    return repr(value)


def append_line(path: str, line: str) -> None:
    """Appends one line with a single ``write``; nothing is left open."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, line.encode("utf-8", "replace"))
    finally:
        os.close(fd)


def write_all(fd: int, data: "bytes | memoryview") -> None:
    """Writes every byte, however many calls that takes."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def finish(home: str, fields: "tuple[str, str, str]", state: str, times: "tuple[int, int]") -> None:
    """Moves a job from the active ones to the index of finished ones.

    Args:
        home: the folder that holds ``index`` and ``active``.
        fields: app id, session and name.
        state: the terminal state's name.
        times: when the job was submitted and when it ended, in ns since the epoch.
    """
    app_id, session, name = fields
    append_line(
        os.path.join(home, "index"),
        f"{app_id}\t{session}\t{state}\t{times[0]}\t{times[1]}\t{name}\n",
    )
    try:
        os.unlink(os.path.join(home, "active", app_id))
    except FileNotFoundError:
        pass


def free_reserve(job_dir: str) -> None:
    """Gives back the space that was kept for a job's last words."""
    try:
        os.unlink(os.path.join(job_dir, "reserve"))
    except OSError:
        pass


def complete(spec: "dict[str, Any]", message: str) -> None:
    """Writes the end that the supervisor could not write."""
    free_reserve(str(spec["job_dir"]))
    now = time.time_ns()
    append_line(
        os.path.join(str(spec["job_dir"]), "journal"),
        f'\n["state", {now}, "FAILED", {dumps(message)}]\n',
    )
    finish(
        str(spec["home"]),
        (str(spec["app_id"]), str(spec["session"]), str(spec["name"])),
        "FAILED",
        (int(spec["created_ns"]), now),
    )
