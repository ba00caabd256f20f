"""Verbs of the runner that end apps."""

from torchx.runner._calls import recorded_call
from torchx.runner._session import Session
from torchx.schedulers.api import one_look
from torchx.specs.api import AppHandle


class EndingVerbs(Session):
    """Cancels and deletes apps."""

    def cancel(self, app_handle: AppHandle) -> None:
        """Asks for the end of the app and does not wait for it; nothing happens if it has ended."""
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("cancel", backend, app_id), one_look():
            status = self.status(app_handle)
            if status is not None and not status.is_terminal():
                scheduler.cancel(app_id)

    def delete(self, app_handle: AppHandle) -> None:
        """Removes the app from the scheduler, which ends it; nothing happens if it is unknown."""
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("delete", backend, app_id), one_look():
            if self.status(app_handle) is not None:
                scheduler.delete(app_id)
                from torchx._launches import note_deletion

                note_deletion(app_handle)

    def stop(self, app_handle: AppHandle) -> None:
        """Deprecated name of ``cancel``."""
        import warnings

        warnings.warn(
            "This method will be deprecated in the future, please use `cancel` instead.",
            PendingDeprecationWarning,
            stacklevel=2,
        )
        self.cancel(app_handle)
