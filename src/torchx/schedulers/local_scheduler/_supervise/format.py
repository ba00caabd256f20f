"""The file formats shared by the supervisor of a job and its readers.

A journal line is a JSON array ``[kind, time_ns, ...]`` that is written with one ``write``: a
partial event can only be the last, unterminated line, which readers ignore.

| kind | fields after the time |
|---|---|
| ``supervised`` | host, boot id, supervisor pid, its start ticks, guard pid, its start ticks |
| ``start`` | role index, replica, attempt, pid, start ticks |
| ``exit`` | role index, replica, attempt, exit code (negative: a signal), 1 if told to stop |
| ``restart`` | policy name, role index, replica, restarts so far, pause before it in ms |
| ``ending`` | coming state, message: the running processes are being ended |
| ``state`` | state name, message |

A log index (``combined.idx`` beside ``combined.log``) holds fixed-size records, one for each
batch of whole lines, in the order in which they were written. Their times strictly increase within
a job, also if the clock is set back.
"""

TERMINAL = frozenset(("SUCCEEDED", "FAILED", "CANCELLED"))

INDEX_RECORD_BYTES = 40
"""Five little-endian unsigned 64-bit integers: time in ns since the epoch, stream, lines of that
stream so far, end offset in the stream's file, end offset in ``combined.log``."""
STREAM_STDOUT = 0
STREAM_STDERR = 1
STREAM_END = 2
"""The last record of a complete log: its lines field holds the total of both streams."""
LONGEST_LINE_BYTES = 64 << 20
"""Longer lines are split between characters into pieces, each a record without a line."""
CONTINUED = b" [continued on the next line]\n"
"""Marks the end of such a piece, in ``combined.log`` and for readers of a stream."""

KEEP = b"keep"
"""The launcher's message on the lifeline: the job is confirmed and must stay."""
FDS_PER_REPLICA = 6
FDS_RESERVED = 64

_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", **{i: f"\\u{i:04x}" for i in range(32)}}


def dumps(value: object) -> str:
    """Encodes plain data as JSON, without the ``json`` module, which costs start-up time."""
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


def event(kind: str, time_ns: int, *fields: "str | int") -> str:
    """Returns a line of a journal."""
    return f"{dumps([kind, time_ns, *fields])}\n"


def attempt_dir(replica_dir: str, attempt: int) -> str:
    """Returns the log folder of an attempt: the replica's own, and one below it for each retry."""
    return replica_dir if attempt == 0 else f"{replica_dir}/attempt_{attempt}"
