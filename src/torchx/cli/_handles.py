"""Resolves short forms of app handles: an app id, a prefix of it, or nothing for the last app."""

from collections.abc import Iterable

from torchx._launches import launches
from torchx._words import did_you_mean
from torchx.errors import AmbiguousApp, InvalidInput, UnresolvedApp
from torchx.runner.api import DEFAULT_SESSION_NAME, Runner

_MOST_CANDIDATES = 10
_LONGEST = 100
"""Letters of a text that is no app id, in the error."""
_FORM = "SCHEDULER://SESSION/APP_ID"


def resolve(text: str | None, runner: Runner | None = None) -> str:
    """Resolves a user's name of an app to its handle. A whole handle is returned without any
    lookup.

    Args:
        text: a handle, an app id or its prefix; ``None`` for the app launched last.
        runner: runner with the session of local apps; ``None`` for the default one.

    Raises:
        AmbiguousApp: if several apps have that prefix; the message lists them.
        InvalidInput: if it is empty.
        UnresolvedApp: if no app launched from here matches.
    """
    if text is None:
        return _last()
    if "://" in text:
        return text
    if not text:
        raise InvalidInput(f"an empty text is no handle, is a variable not set? Write {_FORM}")
    known = _known(runner)
    found = [handle for handle in known if _app_id(handle) == text] or [
        handle for handle in known if _begins(_app_id(handle), text)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnresolvedApp(_unresolved(text, known))
    raise AmbiguousApp(_ambiguous(text, found))


def resolve_identifier(text: str | None, runner: Runner | None = None) -> str:
    """Resolves the app in ``APP[/ROLE[/REPLICAS]]``, the argument of ``torchx log``."""
    if text is None or "://" in text:
        return resolve(text, runner)
    app, slash, rest = text.partition("/")
    return resolve(app, runner) + slash + rest


def _last() -> str:
    latest = launches()
    if not latest:
        msg = f"no app was launched from here yet; give a handle, {_FORM}"
        raise UnresolvedApp(msg)
    return latest[0].handle


def _known(runner: Runner | None) -> list[str]:
    """Returns handles of the apps launched from here, and of other local ones, latest first."""
    from torchx.schedulers.local_scheduler._store import Store

    session = DEFAULT_SESSION_NAME if runner is None else runner.name()
    noted = [launch.handle for launch in launches()]
    local = {_app_id(handle) for handle in noted if handle.startswith("local_cwd://")}
    return noted + [
        f"local_cwd://{session}/{app_id}" for app_id in Store().ids() if app_id not in local
    ]


def _app_id(handle: str) -> str:
    return handle.rpartition("/")[2]


def _begins(app_id: str, text: str) -> bool:
    """Returns True if the id, or its part after a namespace or queue, starts with the text.

    >>> _begins("team:train-x", "train"), _begins("train-x", "x")
    (True, False)
    """
    return app_id.startswith(text) or app_id.partition(":")[2].startswith(text)


def _ambiguous(text: str, found: list[str]) -> str:
    shown = found[:_MOST_CANDIDATES]
    more = [f"... and {len(found) - len(shown)} more"] if len(found) > len(shown) else []
    lines = "\n  ".join([*shown, *more])
    return f"{_quoted(text)} may be any of {len(found)} apps, write more of its app id:\n  {lines}"


def _unresolved(text: str, known: Iterable[str]) -> str:
    meant = did_you_mean(text, (_app_id(handle) for handle in known))
    return (
        f"no app launched from here has an id that begins with {_quoted(text)}.{meant} Give the"
        f" whole handle, {_FORM}; `torchx list -s SCHEDULER` shows them"
    )


def _quoted(text: str) -> str:
    """What was given, on one line, however long it is and whatever is in it."""
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"`{shown}`" if shown.isprintable() else ascii(shown)
