"""The runner's methods about recorded launches."""

from typing import TYPE_CHECKING, Any

from torchx.runner._session import Session
from torchx.schedulers.api import Scheduler
from torchx.specs.api import AppHandle

if TYPE_CHECKING:
    from torchx.runner._requests import RecordedRequest
    from torchx.specs.api import AppDryRunInfo


class RecordVerbs(Session):
    """Reads records of launches."""

    def recorded(self, app_handle: AppHandle) -> "RecordedRequest":
        """Returns the request of an app that this user launched on this machine.

        Raises:
            UnknownName: if there is no record of it.
            InvalidInput: if the record was written by a newer version.
        """
        from torchx.runner._requests import read

        scheduler, app_id, backend = self._find(app_handle)
        return read(scheduler, backend, app_id, app_handle)

    def _note_request(self, backend: str, app_id: str, info: "AppDryRunInfo[Any]") -> None:
        """Records a launched request, unless its scheduler has done so."""
        hook = getattr(type(self._scheduler(backend)), "recorded_request", None)
        if hook in (None, Scheduler.recorded_request):
            from torchx.runner._requests import note

            note(backend, app_id, info)
