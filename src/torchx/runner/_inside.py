"""The runner's methods that reach into a running replica."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchx.errors import UnsupportedRequest
from torchx.runner._calls import recorded_call
from torchx.runner._session import Session
from torchx.schedulers.api import Scheduler, one_look
from torchx.specs.api import AppHandle, UnknownAppException

if TYPE_CHECKING:
    from torchx.schedulers._core.ports import ForwardedPort
    from torchx.schedulers.api import AppSnapshot, ReplicaKey, ReplicaSnapshot


class InsideVerbs(Session):
    """Runs commands in replicas and reaches their ports."""

    def exec(
        self,
        app_handle: AppHandle,
        command: Sequence[str],
        replica: "ReplicaKey | None" = None,
        *,
        tty: bool = False,
        stdin: int | None = None,
        stdout: int = 1,
        stderr: int = 2,
    ) -> int:
        """Runs a command in a running replica, with its environment and in its directory.

        Args:
            replica: role and index; ``None`` for the first running one.
            tty: give the command a terminal, that of ``stdin``; needed by shells and editors.
            stdin: file descriptor that the command reads; ``None`` for no input.
            stdout: file descriptor that the command writes to, like ``stderr``.

        Returns:
            Its exit code as a shell reports it: 128 plus the number of a signal that ended it.

        Raises:
            UnknownAppException: if the scheduler does not know the app.
            UnsupportedRequest: if it cannot run commands in replicas.
            InvalidInput: if there is no such replica, or it does not run.
        """
        from torchx.schedulers._core.executing import ExecRequest, cannot_execute, check_command

        request = ExecRequest(check_command(command), tty, stdin, stdout, stderr)
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("exec", backend, app_id):
            with one_look():
                snapshot, found = self._running(app_handle, replica)
            features = getattr(scheduler, "features", None)
            if not getattr(features, "execute", False):  # schedulers of other packages may lack it
                raise cannot_execute(backend, found)
            return scheduler.execute(snapshot, found, request)

    def forward_port(
        self,
        app_handle: AppHandle,
        port: int,
        replica: "ReplicaKey | None" = None,
        *,
        local: int = 0,
        address: str = "127.0.0.1",
    ) -> "ForwardedPort":
        """Forwards a local port to a port of a running replica, until it is closed.

        Args:
            replica: role and index; ``None`` for the first running one.
            local: number of the local port; 0 for any free one.

        Raises:
            UnknownAppException: if the scheduler does not know the app.
            UnsupportedRequest: if it cannot forward ports.
            InvalidInput: if there is no such replica, it does not run, or the port is taken.
        """
        from torchx.schedulers._core.ports import ForwardedPort

        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("forward_port", backend, app_id):
            if not _can_forward(scheduler):
                raise self._cannot_forward(app_handle, port, replica)
            with one_look():
                snapshot, found = self._running(app_handle, replica)
            forwarded = ForwardedPort(
                local, address, lambda: scheduler.open_port(snapshot, found, port)
            )
            forwarded.start()
            return forwarded

    def _cannot_forward(
        self, app_handle: AppHandle, port: int, replica: "ReplicaKey | None"
    ) -> UnsupportedRequest:
        """The refusal, which names the replica's host if it runs, and who can."""
        from torchx.schedulers._core.executing import ReplicaNotRunning, cannot_forward

        _, _, backend = self._find(app_handle)
        found: ReplicaSnapshot | None = None
        with contextlib.suppress(UnsupportedRequest, ReplicaNotRunning), one_look():
            found = self._running(app_handle, replica)[1]
        others = []
        for name in self.scheduler_backends():
            with contextlib.suppress(Exception):  # it cannot be made, for any reason
                if _can_forward(self._scheduler(name)):
                    others.append(name)
        return cannot_forward(backend, found, port, others)

    def _running(
        self, app_handle: AppHandle, replica: "ReplicaKey | None"
    ) -> "tuple[AppSnapshot, ReplicaSnapshot]":
        from torchx.schedulers._core.executing import running_replica

        scheduler, app_id, backend = self._find(app_handle)
        snapshot = look(scheduler, app_id, backend)
        if snapshot is None:
            raise UnknownAppException(app_handle)
        return snapshot, running_replica(snapshot, replica)


def _can_forward(scheduler: object) -> bool:
    return bool(getattr(getattr(scheduler, "features", None), "port_forward", False))


def look(scheduler: "Scheduler[Any]", app_id: str, backend: str) -> "AppSnapshot | None":
    """Returns the snapshot of an app, through the scheduler's hook ``look``."""
    snapshot = getattr(scheduler, "snapshot", None)
    if snapshot is None or getattr(type(scheduler), "look", None) is Scheduler.look:
        msg = f"scheduler `{backend}` does not tell enough of the replicas of its apps for this"
        raise UnsupportedRequest(msg)
    found: AppSnapshot | None = snapshot(app_id)
    return found
