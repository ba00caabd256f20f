"""The runner's methods that explain states of apps, and check what schedulers need."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torchx
from torchx.errors import TorchXError
from torchx.runner._calls import recorded_call
from torchx.runner._prepare import takes_args
from torchx.runner._session import Session, method_of
from torchx.settings import ENV_TORCHX_IMAGE
from torchx.specs.api import AppHandle, CfgVal

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
        found: Explanation | None = self._told("explain", app_handle, free)
        return found

    def why(self, app_handle: AppHandle) -> "Explanation | None":
        """Like ``explain``: returns the cause and its evidence, which ``torchx why`` prints."""
        return self.explain(app_handle)

    def overview(self, app_handle: AppHandle, *, free: bool = False) -> "AppSnapshot | None":
        """Returns a snapshot of the app and its replicas; ``None`` if the app is unknown.

        Args:
            free: return ``None`` if that needs more than the current snapshot.
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

    def checkups(
        self, scheduler: str, cfg: "Mapping[str, CfgVal] | None" = None
    ) -> "Sequence[Checkup]":
        """Returns the checks that ``torchx doctor`` runs for a scheduler.

        Args:
            cfg: options that are checked as well.
        """
        from torchx.schedulers.checkups import Configured

        hook = getattr(self._scheduler(scheduler), "checkups", None)  # older ones may lack it
        if hook is None:
            return ()
        configured = Configured(dict(cfg or {}), self._images())
        found: Sequence[Checkup] = hook(configured) if takes_args(hook, configured) else hook()
        return found

    def _images(self) -> dict[str, str]:
        """Images of components, and where each of them is named; empty for the default one."""
        named = "TORCHX_IMAGE" if os.environ.get(ENV_TORCHX_IMAGE) else ""
        images = {torchx.IMAGE: named}
        for component, defaults in self._component_defaults.items():
            if defaults.get("image"):
                images.setdefault(defaults["image"], f"[component:{component}]")
        return images


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
