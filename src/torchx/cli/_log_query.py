"""The query of `torchx log`: replicas, and which of their lines."""

import argparse
import sys
from typing import TYPE_CHECKING

from torchx._startup.dataclass import light_dataclass
from torchx.schedulers.api import Stream
from torchx.specs import make_app_handle

if TYPE_CHECKING:
    from datetime import datetime, timedelta

ID_FORMAT = "SCHEDULER://[SESSION_NAME]/APP_ID/[ROLE_NAME/[REPLICA_IDS,...]]"

DEFAULT_SESSION = "default"

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@light_dataclass(frozen=True)
class LogTarget:
    """The replicas to read; `None` is all roles, and no ids are all replicas."""

    scheduler: str
    session: str
    app_id: str
    role: str | None
    ids: tuple[int, ...]

    @property
    def handle(self) -> str:
        return make_app_handle(self.scheduler, self.session, self.app_id)


@light_dataclass(frozen=True)
class LogQuery:
    """The lines to read: pattern, time range, attempt and number."""

    regex: str | None = None
    should_tail: bool = False
    streams: Stream | None = None
    since: "datetime | None" = None
    until: "datetime | None" = None
    tail_lines: int | None = None
    """Number of last lines of each replica among those that exist now; `None` for all."""
    attempt: int | None = None


def parse_identifier(text: str) -> LogTarget | None:
    """Parses `ID_FORMAT`; `None` if the text does not have that form.

    >>> parse_identifier("slurm:///77/trainer/0,2")
    LogTarget(scheduler='slurm', session='default', app_id='77', role='trainer', ids=(0, 2))
    """
    import re

    found = re.fullmatch(
        r"([\w.+-]+)://([^/\n]*)/([^/\n]+)(?:/([^/\n]+)(?:/([0-9]+(?:,[0-9]+)*),?)?)?",
        text,
        re.ASCII,
    )
    if found is None:
        return None
    scheduler, session, app_id, role, ids = found.groups()
    numbers = tuple(dict.fromkeys(map(int, ids.split(",")))) if ids else ()
    return LogTarget(scheduler, session or DEFAULT_SESSION, app_id, role, numbers)


def parse_time(text: str) -> "datetime":
    """Parses a time: RFC 3339 (local time without an offset), or an age such as ``1h30m``."""
    from datetime import datetime, timezone

    age = _parse_age(text)
    if age is not None:
        return datetime.now(timezone.utc) - age
    plain = text.strip()
    if plain[-1:] in ("Z", "z"):
        plain = f"{plain[:-1]}+00:00"
    try:
        return datetime.fromisoformat(plain).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        msg = (
            f"`{text}` is not a time, write an age (10m, 2h, 1d12h) or"
            " a date and time (2030-01-31T12:00:00Z, local time without an offset)"
        )
        raise argparse.ArgumentTypeError(msg) from None


def parse_regex(text: str) -> str:
    """Checks a regular expression and returns it."""
    import re

    try:
        re.compile(text)
    except re.error as err:
        msg = f"`{text}` is not a regular expression: {err}"
        raise argparse.ArgumentTypeError(msg) from None
    return text


def parse_count(text: str) -> int:
    """Parses a number of 0 or more."""
    if not (text.isascii() and text.isdigit()):
        msg = f"`{text}` is not a number, write 0 or more"
        raise argparse.ArgumentTypeError(msg)
    return min(int(text), sys.maxsize)  # the largest index; larger numbers mean the same


def _parse_age(text: str) -> "timedelta | None":
    """Parses ``10m`` or ``1h30m``; `None` if the text is not an age."""
    import re
    from datetime import timedelta

    parts = re.findall(r"([0-9]+)([smhdw])", text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    try:
        return sum(
            (timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta()
        )
    except OverflowError:
        return None
