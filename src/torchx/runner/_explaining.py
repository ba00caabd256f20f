"""The runner's methods that explain states of apps, and check what schedulers need."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchx.errors import TorchXError
from torchx.runner._calls import recorded_call
from torchx.runner._session import Session, method_of
from torchx.specs.api import AppHandle

if TYPE_CHECKING:
    from torchx.schedulers.api import AppSnapshot, Scheduler
    from torchx.schedulers.causes import Explanation
    from torchx.schedulers.checkups import Checkup


class ExplainingVerbs(Session):
    """Explains why apps are in their state, and what keeps schedulers from running them."""

    def explain(self, app_handle: AppHandle, *, free: bool = False) -> "Explanation | None":
        """Explains why the app waits, failed or was lost; ``None`` if the scheduler does not know
        it.

        Args:
            free: return ``None`` if the answer needs more than the current snapshot.
        """
        scheduler, app_id, backend = self._find(app_handle)
        if free and not has_look(scheduler):
            return None
        with recorded_call("explain", backend, app_id):
            found: Explanation | None = method_of(scheduler, "explain", backend)(app_id)
            return found

    def why(self, app_handle: AppHandle) -> "Explanation | None":
        """Like ``explain``: returns the cause and its evidence, which ``torchx why`` prints."""
        return self.explain(app_handle)

    def overview(self, app_handle: AppHandle, *, free: bool = False) -> "AppSnapshot | None":
        """Returns a snapshot of the app and its replicas; ``None`` if the app is unknown.

        Args:
            free: return ``None`` if that needs more than the current snapshot.
        """
        scheduler, app_id, backend = self._find(app_handle)
        if free and not has_look(scheduler):
            return None
        with recorded_call("overview", backend, app_id):
            found: AppSnapshot | None = method_of(scheduler, "overview", backend)(app_id)
            return found

    def checkups(self, scheduler: str) -> "Sequence[Checkup]":
        """Returns the checks that ``torchx doctor`` runs for a scheduler."""
        found = getattr(self._scheduler(scheduler), "checkups", None)  # older ones may lack it
        return found() if found is not None else ()


def has_look(scheduler: object) -> bool:
    """Returns True if all calls within ``one_look`` share one query of the backend."""
    found = getattr(scheduler, "has_look", None)  # schedulers of other packages may lack it
    return found is not None and bool(found())


@contextmanager
def explaining_refusals(scheduler: "Scheduler[Any]", backend: str) -> Iterator[None]:
    """Adds to errors within it why the scheduler does not launch the app."""
    try:
        yield
    except TorchXError as err:
        if err.explanation is None:
            from torchx.schedulers._core.refusals import explain_refusal

            rules = getattr(
                scheduler, "refusal_rules", None
            )  # schedulers of other packages may lack it
            err.explanation = explain_refusal(err, backend, rules() if rules is not None else ())
        raise
