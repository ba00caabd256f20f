"""Compares the clocks of this machine and of a service."""

import re
from datetime import datetime, timezone

from torchx._startup.dataclass import light_dataclass

from .checkups import Finding, broken, neutral, ok, warning

LEEWAY_S = 60.0
"""Tolerance for the times of tokens, unless a service sets another one: `DefaultLeeway` of
https://pkg.go.dev/github.com/go-jose/go-jose/v4/jwt, `Leeway` of the registry's tokens in
https://github.com/distribution/distribution."""
_FIX = "Set this machine's clock: timedatectl set-ntp true"


@light_dataclass(frozen=True)
class Limit:
    """A difference that a service does not tolerate, and its effect."""

    seconds: float
    refusal: str


def parse_http_date(text: str) -> float | None:
    """Parses a header ``Date`` to seconds since the epoch; ``None`` if it is invalid.

    >>> parse_http_date("Thu, 01 Jan 1970 00:01:00 GMT"), parse_http_date("soon")
    (60.0, None)
    """
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def parse_rfc3339(text: str) -> float | None:
    """Parses to seconds since the epoch, with any number of decimals; ``None`` if it is invalid.

    >>> parse_rfc3339("1970-01-01T01:01:00.123456789+01:00"), parse_rfc3339("soon")
    (60.0, None)
    """
    found = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)$", text)
    if found is None:
        return None
    try:
        zone = found[2].replace("Z", "+00:00")
        return datetime.fromisoformat(found[1] + zone).astimezone(timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None


def clock_finding(
    there_s: float | None, here_s: float, whose: str, limit: Limit | None = None
) -> Finding:
    """Checks that two clocks agree closely enough.

    Args:
        there_s: the service's time; ``None`` if unknown.
        here_s: this machine's time when the answer arrived.
        whose: name of the other clock, for the message.
        limit: the difference beyond which nothing works.
    """
    if there_s is None:
        return neutral(f"{whose} does not report its time")
    off_s = there_s - here_s
    if abs(off_s) <= LEEWAY_S:
        return ok(f"agrees with that of {whose} within {max(abs(off_s), 1):.0f} s")
    text = f"that of {whose} is {_words(abs(off_s))} {'ahead' if off_s > 0 else 'behind'}"
    if limit is not None and abs(off_s) > limit.seconds:
        return broken(f"{text}: {limit.refusal}", _FIX)
    return warning(f"{text}: ages and times of logs are wrong, tokens may be refused", _FIX)


def _words(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 36000 else f"{seconds / 3600:.0f} h"
