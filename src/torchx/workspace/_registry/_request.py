"""One request to a registry, and how it can fail; without urllib3, which is an optional package."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

BLOCK = 1 << 18
"""Bytes that are read or sent at once."""


class Interrupted(Exception):
    """The request may succeed later: the connection broke, or the registry is busy.

    Args:
        asked_s: pause that the registry asks for.
    """

    def __init__(self, reason: str, asked_s: float | None = None) -> None:
        super().__init__(reason)
        self.asked_s = asked_s


@dataclass(frozen=True)
class Body:
    """Bytes that a request sends; they can be read again, to send them once more."""

    length: int
    open: Callable[[], Iterable[bytes]]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.open())


@dataclass(frozen=True)
class Request:
    """One request; ``url`` may be a path of the registry."""

    method: str
    url: str
    doing: str
    """For messages: `upload …`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | bytes | None = None
    expected: frozenset[int] = frozenset({200})
