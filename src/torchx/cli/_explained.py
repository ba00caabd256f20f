"""The texts of the command line about the cause of an app's state."""

from typing import TYPE_CHECKING

from torchx._launches import launches
from torchx.cli._look import Look
from torchx.errors import BackendUnavailable, TorchXError
from torchx.runner import Runner
from torchx.specs import AppState, parse_app_handle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchx.schedulers.api import AppSnapshot
    from torchx.schedulers.causes import Explanation

_FINE = (AppState.SUCCEEDED, AppState.CANCELLED)


def explained(runner: Runner, handle: str, state: AppState) -> "Explanation | None":
    """Returns the cause of the app's state; ``None`` if it is unknown or needs none."""
    if state in _FINE:
        return None
    explain = getattr(runner, "explain", None)  # a stand-in may lack it
    try:
        found: Explanation | None = None if explain is None else explain(handle, free=True)
    except TorchXError:
        return None
    return None if found is None or found.cause.value in ("none", "starting") else found


def overview(runner: Runner, handle: str) -> "AppSnapshot | None":
    """Returns the snapshot of an app; ``None`` if it cannot be had."""
    look = getattr(runner, "overview", None)  # a stand-in may lack it
    try:
        found: AppSnapshot | None = None if look is None else look(handle, free=True)
    except (TorchXError, NotImplementedError):
        return None
    return found


def replicas_of(runner: Runner, handle: str) -> list[tuple[str, int]]:
    """Returns role and index of an app's replicas, in order, as far as they are known."""
    found = overview(runner, handle)
    return [replica.key for replica in found.replicas] if found is not None else []


def place_of(found: "Explanation") -> str:
    """Returns file, line and function that raised the exception; empty if unknown."""
    import re

    texts = (item.text for item in found.evidence if item.source == "exception")
    places = (re.search(r" \(([^()]+:\d+(?: in [^()]+)?)\)$", text) for text in texts)
    return next((place.group(1) for place in places if place), "")


def app_name(handle: str) -> str:
    """Returns the shortest name of an app that commands accept: its app id, else its handle."""
    app_id = parse_app_handle(handle).app_id
    same = {launch.handle for launch in launches() if launch.app_id == app_id}
    return app_id if same == {handle} else handle


def commands(handle: str, found: "Explanation") -> list[str]:
    """Returns the suggested actions, with the name of the app filled in."""
    name = app_name(handle)
    return [text.replace("{app}", name) for text in found.do]


def hints(look: Look, handle: str, found: "Explanation") -> list[str]:
    """Lines with what to do."""
    return hint_lines(look, commands(handle, found))


def hint_lines(look: Look, texts: "Iterable[str]") -> list[str]:
    """Returns lines with suggested actions. Commands stay on one line, so that they can be
    pasted.
    """
    return [line for text in texts for line in look.hint(text, "  ")]


def backend_away(handle: str, err: BackendUnavailable) -> "Explanation":
    """Returns the explanation for an app whose backend cannot be reached."""
    from torchx.schedulers.causes import Cause, Evidence, Explanation

    scheduler = parse_app_handle(handle).scheduler_backend
    return Explanation(
        AppState.UNKNOWN,
        Cause.BACKEND_AWAY,
        f"`{scheduler}` cannot be reached, so the state of the app is unknown",
        evidence=(Evidence("scheduler", str(err)),),
        do=(f"torchx doctor -s {scheduler}",),
    )


def to_json(handle: str, found: "Explanation") -> dict[str, object]:
    """Returns the output of ``torchx why --json``."""
    scheduler, _, app_id = parse_app_handle(handle)
    return {
        "handle": handle,
        "app_id": app_id,
        "scheduler": scheduler,
        "state": found.state.name,
        "cause": found.cause.value,
        "summary": found.summary,
        "replica": found.replica or None,
        "evidence": [{"source": item.source, "text": item.text} for item in found.evidence],
        "do": commands(handle, found),
    }
