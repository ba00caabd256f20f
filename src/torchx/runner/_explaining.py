"""Verbs of the runner that explain: apps, and what schedulers need."""

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
    """Tells why apps are in their state, and what keeps schedulers from running them."""

    def explain(self, app_handle: AppHandle, *, free: bool = False) -> "Explanation | None":
        """Why the app waits, failed or was lost; ``None`` if the scheduler does not know it.

        Args:
            free: ``None`` as well where that takes more than the look that is under way.
        """
        found: Explanation | None = self._told("explain", app_handle, free)
        return found

    def why(self, app_handle: AppHandle) -> "Explanation | None":
        """As ``explain``: the cause and its evidence that ``torchx why`` prints."""
        return self.explain(app_handle)

    def overview(self, app_handle: AppHandle, *, free: bool = False) -> "AppSnapshot | None":
        """All that is known of the app and its replicas; ``None`` if the app is unknown.

        Args:
            free: ``None`` as well where that takes more than the look that is under way.
        """
        found: AppSnapshot | None = self._told("overview", app_handle, free)
        return found

    def _told(self, method: str, app_handle: AppHandle, free: bool) -> Any:
        """What a method of the scheduler says of an app, unless that is not free."""
        scheduler, app_id, backend = self._find(app_handle)
        if free and not has_look(scheduler):
            return None
        with recorded_call(method, backend, app_id):
            return method_of(scheduler, method, backend)(app_id)

    def checkups(self, scheduler: str) -> "Sequence[Checkup]":
        """What ``torchx doctor`` checks of a scheduler."""
        found = getattr(self._scheduler(scheduler), "checkups", None)  # older ones may lack it
        return found() if found is not None else ()


def has_look(scheduler: object) -> bool:
    """Whether all that is asked within ``one_look`` is one question to the backend."""
    found = getattr(scheduler, "has_look", None)  # those of other packages may lack it
    return found is not None and bool(found())


@contextmanager
def explaining_refusals(scheduler: "Scheduler[Any]", backend: str) -> Iterator[None]:
    """Adds to errors within it why the scheduler does not launch the app."""
    try:
        yield
    except TorchXError as err:
        if err.explanation is None:
            from torchx.schedulers._core.refusals import explain_refusal

            rules = getattr(scheduler, "refusal_rules", None)  # those of other packages may lack it
            err.explanation = explain_refusal(err, backend, rules() if rules is not None else ())
        raise
