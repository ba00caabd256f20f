"""Shares one snapshot during a call: the backend is queried once, however many steps need it."""

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .snapshot import AppSnapshot

    _Seen = dict[tuple[int, str], AppSnapshot | None]

_seen: "ContextVar[_Seen | None]" = ContextVar("torchx_seen", default=None)


class one_look:
    """Within this context an app is queried once; nested contexts share its snapshots.

    Args:
        fresh: do not share snapshots with the enclosing context, for code that polls.
    """

    _token: "Token[_Seen | None] | None" = None

    def __init__(self, fresh: bool = False) -> None:
        self._fresh = fresh

    def __enter__(self) -> None:
        if self._fresh or _seen.get() is None:
            self._token = _seen.set({})

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _seen.reset(self._token)


def seen(
    scheduler: object, app_id: str, look: "Callable[[str], AppSnapshot | None]"
) -> "AppSnapshot | None":
    """Returns the snapshot of the current context; a new one outside of any."""
    known = _seen.get()
    if known is None:
        return look(app_id)
    key = id(scheduler), app_id
    if key not in known:
        known[key] = look(app_id)
    return known[key]


def forget(scheduler: object, app_id: str) -> None:
    """Drops the snapshot of an app that was changed, so that the next look queries the backend."""
    known = _seen.get()
    if known is not None:
        known.pop((id(scheduler), app_id), None)
