"""What clients of the published package import, make, replace or look at."""

import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from torchx.specs.api import AppDryRunInfo, AppState, is_terminal

if TYPE_CHECKING:
    import signal


class SignalException(BaseException):
    """SIGTERM or SIGINT arrived; raised in the main thread.

    No `Exception`, like `KeyboardInterrupt`: it may arrive anywhere, also where those are
    swallowed, as in the handlers of `logging`.
    """

    def __init__(self, msg: str, sigval: "signal.Signals") -> None:
        super().__init__(msg)
        self.sigval = sigval


class PopenProtocol(Protocol):
    """What there is to know of a process: the part of ``subprocess.Popen`` that plugins use."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...


class _LocalAppDef:
    """A job of this process. NeMo-Run makes these with two arguments, kept in ``_apps``."""

    def __init__(
        self,
        id: str,
        log_dir: str,
        dryrun_info: AppDryRunInfo[Any] | None = None,
        lifeline: Any = None,
    ) -> None:
        self.id = id
        self.log_dir = log_dir
        self.dryrun_info = dryrun_info
        self.role_replicas: dict[str, list[object]] = {}
        self.state = AppState.PENDING
        self.last_updated: float = -1
        self._lifeline = lifeline
        self._owner = os.getpid()

    def set_state(self, state: AppState) -> None:
        """Keeps the state with the time it was seen."""
        self.last_updated = time.time()
        self.state = state

    def kill(self) -> None:
        """Ends the job, attached or not, and waits until nothing of it runs."""
        from ._client import end
        from ._store import Store

        store = Store()
        record = store.read(self.id)
        if record is not None and not store.view(record).terminal:
            end(store, record)

    @property
    def cut_off(self) -> bool:
        """Whether the job has ended, and still takes a file descriptor here."""
        return self._lifeline is not None and self._owner == os.getpid() and self._lifeline.cut

    def close(self) -> None:
        """Ends the job if it is attached to this process; a forked child ends nothing."""
        if self._lifeline is None or self._owner != os.getpid():
            return
        if not is_terminal(self.state):
            self.kill()
        self._lifeline.close()
        self._lifeline = None
