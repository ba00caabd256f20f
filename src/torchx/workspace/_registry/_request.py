"""A request to a registry, and its errors; without urllib3, which is an optional package."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

BLOCK = 1 << 18
"""Bytes read or sent at once."""


class Interrupted(Exception):
    """A retry may succeed: the connection broke, or the registry is busy.

    Args:
        asked_s: pause in seconds that the registry requests.
    """

    def __init__(self, reason: str, asked_s: float | None = None) -> None:
        super().__init__(reason)
        self.asked_s = asked_s


@dataclass(frozen=True)
class Body:
    """The body of a request; it can be read again for retries."""

    length: int
    open: Callable[[], Iterable[bytes]]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.open())


@dataclass(frozen=True)
class Request:
    """A request; ``url`` may be a path of the registry."""

    method: str
    url: str
    doing: str
    """For messages: `upload …`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | bytes | None = None
    expected: frozenset[int] = frozenset({200})
