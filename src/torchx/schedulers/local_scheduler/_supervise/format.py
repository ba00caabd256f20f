"""What the supervisor of a job and its readers agree on: the format of the record, and a word.

A journal line is a JSON array ``[kind, time_ns, ...]`` that is written with one ``write``: a
reader never sees half an event but as the last, unterminated line, which it ignores.

| kind | fields after the time |
|---|---|
| ``supervised`` | host, boot id, supervisor pid, its start ticks, guard pid, its start ticks |
| ``start`` | role index, replica, attempt, pid, start ticks |
| ``exit`` | role index, replica, attempt, exit code (negative: a signal), 1 if told to stop |
| ``restart`` | policy name, role index, replica, restarts so far, pause before it in ms |
| ``ending`` | state to come, message: all that runs is being ended |
| ``state`` | state name, message |

A log index (``combined.idx`` beside ``combined.log``) holds fixed-size records, one for each
batch of whole lines, in the order in which they were written. Their times only grow, also where
the clock is set back, and no two of a job are the same.
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
"""Longer lines are cut into pieces between two characters, each a record that counts no line."""
CONTINUED = b" [continued on the next line]\n"
"""Ends a piece of such a line, in ``combined.log`` and for readers of a stream."""

KEEP = b"keep"
"""What a launcher says on the lifeline: the job is known to its user and is to stay."""
FDS_PER_REPLICA = 6
FDS_RESERVED = 64

_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", **{i: f"\\u{i:04x}" for i in range(32)}}


def dumps(value: object) -> str:
    """Plain data as JSON, without the ``json`` module, which costs start-up time."""
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
    """One line of a journal."""
    return f"{dumps([kind, time_ns, *fields])}\n"


def attempt_dir(replica_dir: str, attempt: int) -> str:
    """Where one attempt's logs lie: the replica's own folder first, one below it for each retry."""
    return replica_dir if attempt == 0 else f"{replica_dir}/attempt_{attempt}"
