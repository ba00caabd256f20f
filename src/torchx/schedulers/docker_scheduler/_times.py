"""Converts between Docker's times and nanoseconds since the epoch."""


def parse_ns(moment: str) -> int | None:
    """Parses a UTC time to nanoseconds since the epoch; ``None`` for unset times, of the year 1.

    >>> parse_ns("1970-01-01T00:00:01.000000002Z"), parse_ns("0001-01-01T00:00:00Z")
    (1000000002, None)
    """
    from datetime import datetime, timezone

    try:
        second = datetime.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    if second.year == 1:
        return None
    digits = moment[20:].rstrip("Z")
    fraction = int((digits + "0" * 9)[:9]) if digits.isdigit() else 0
    return int(second.timestamp()) * 1_000_000_000 + fraction


def as_seconds(ns: int) -> str:
    """Formats a time for Docker's API: seconds with nine decimals.

    >>> as_seconds(1_500_000_000)
    '1.500000000'
    """
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{seconds}.{rest:09d}"
