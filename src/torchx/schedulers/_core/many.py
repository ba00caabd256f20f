"""Ends or removes many apps: queries all of them, then acts, and continues after a failure."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from torchx._startup.dataclass import light_dataclass
from torchx.errors import TorchXError
from torchx.specs.api import AppState

from .snapshot import AppSnapshot


@light_dataclass(frozen=True)
class Outcome:
    """The outcome for one app."""

    app_id: str
    before: AppState | None
    """State before the call; ``None`` if the scheduler does not know the app."""
    acted: bool = False
    """True if the backend accepted the request."""
    error: TorchXError | None = None


Act = Callable[[Sequence[AppSnapshot]], Mapping[str, TorchXError]]


def each(
    act: Callable[[AppSnapshot], None], snapshots: Iterable[AppSnapshot]
) -> dict[str, TorchXError]:
    """Acts on one app after the other; returns errors by app id."""
    errors: dict[str, TorchXError] = {}
    for snapshot in snapshots:
        try:
            act(snapshot)
        except TorchXError as err:
            errors[snapshot.app_id] = err
    return errors


def act_on(
    app_ids: Sequence[str],
    found: Mapping[str, AppSnapshot],
    wanted: Callable[[AppSnapshot], bool],
    act: Act,
) -> list[Outcome]:
    """Acts on the matching apps at once; returns outcomes of all in the given order."""
    chosen = [found[i] for i in app_ids if i in found and wanted(found[i])]
    errors = act(chosen) if chosen else {}
    acted = {snapshot.app_id for snapshot in chosen}
    outcomes = []
    for app_id in app_ids:
        snapshot = found.get(app_id)
        before = None if snapshot is None else snapshot.state
        error = errors.get(app_id)
        outcomes.append(Outcome(app_id, before, app_id in acted and error is None, error))
    return outcomes
