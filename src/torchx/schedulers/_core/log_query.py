"""The query for log lines, and the type of the chunks returned."""

from typing import NamedTuple

from torchx._startup.dataclass import light_dataclass

from .responses import Stream


@light_dataclass(frozen=True)
class LogQuery:
    """The lines requested from each replica."""

    stream: Stream = Stream.COMBINED
    since_ns: int | None = None
    """Nanoseconds since the epoch, like ``until_ns``; ``None`` for no limit."""
    until_ns: int | None = None
    follow: bool = False
    """Go on until the app has ended, instead of what there is now."""
    attempt: int | None = None
    """``None`` for all attempts, one after the other."""
    tail: int | None = None
    """At least this many of the last lines are needed; ``None`` for all. Never with ``follow``."""


class LogKey(NamedTuple):
    """The source of output: role, replica, attempt."""

    role: str
    replica: int
    attempt: int = 0


LogChunk = tuple[LogKey, int | None, bytes]
"""Whole lines of one replica that were written at one time, which is ``None`` if unknown.

Only the last chunk of an attempt may lack a newline at its end, or a piece of a very long line,
directly followed by its rest.
"""
