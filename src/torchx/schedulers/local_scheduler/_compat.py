"""Names that clients of the published package import, create, replace or read."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Protocol

from torchx.errors import UnsupportedRequest
from torchx.specs.api import AppDryRunInfo, AppState, is_terminal

from ._images import ReplicaParam
from ._request import PopenRequest, join_path

if TYPE_CHECKING:
    import signal
    import subprocess


class SignalException(BaseException):
    """SIGTERM or SIGINT arrived; raised in the main thread.

    Not an `Exception`, like `KeyboardInterrupt`: it may arrive anywhere, also in code that swallows
    exceptions, such as handlers of `logging`.
    """

    def __init__(self, msg: str, sigval: "signal.Signals") -> None:
        super().__init__(msg)
        self.sigval = sigval


class SignalHandlers:
    """Makes SIGTERM and SIGINT raise in the main thread, so that ``finally`` ends the jobs.

    Active while an instance is open, and only if the program has no handlers of its own.
    """

    _open = 0
    _before: "dict[int, object]" = {}  # noqa: RUF012 - of the process, as its handlers are

    def __init__(self) -> None:
        import signal

        self._closed = not _in_main_thread()
        if self._closed:
            return
        SignalHandlers._open += 1
        for signum in (signal.SIGTERM, signal.SIGINT):
            found = signal.getsignal(signum)
            if found in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(signum, _raise_signal)
                self._before[signum] = found

    def close(self) -> None:
        """Restores the previous handlers, if this is the last open instance."""
        if self._closed:
            return
        self._closed = True
        SignalHandlers._open -= 1
        if SignalHandlers._open or not _in_main_thread():
            return
        import signal

        for signum, found in [*self._before.items()]:
            if signal.getsignal(signum) is _raise_signal:
                signal.signal(signum, found)  # type: ignore[arg-type]  # the result of `getsignal`
        self._before.clear()


def _in_main_thread() -> bool:
    threading = sys.modules.get("threading")  # without it there is only the main thread
    return threading is None or threading.current_thread() is threading.main_thread()


def _raise_signal(signum: int, _frame: object) -> None:
    import signal

    sigval = signal.Signals(signum)
    msg = f"process {os.getpid()} got signal {sigval.name}"
    raise SignalException(msg, sigval)


class PopenProtocol(Protocol):
    """The part of ``subprocess.Popen`` that plugins use."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...


planning: "ContextVar[bool]" = ContextVar("torchx_local_planning", default=False)
"""True while ``run_local_job`` is called for what to run, and must not start it."""


class Planned:
    """Stands in for the process of a replica that its supervisor will start."""

    pid = -1
    returncode = None

    def __init__(self, args: "list[str]", env: "Mapping[str, str]", cwd: str | None) -> None:
        self.args = args
        self.env = env
        self.cwd = cwd

    def wait(self, timeout: float | None = None) -> int:
        msg = "the process is started by the supervisor of its job; wait for the app"
        raise UnsupportedRequest(msg)

    def poll(self) -> int | None:
        """Returns ``None``: it has not ended."""
        return None

    def kill(self) -> None:
        """Does nothing: there is no process yet."""


def start_process(
    args: "list[str]",
    env: "Mapping[str, str]",
    stdout: IO[bytes] | None,
    stderr: IO[bytes] | None,
    cwd: str | None,
) -> "subprocess.Popen[bytes]":
    """Starts a process in its own session, as release 0.7 does."""
    import subprocess

    return subprocess.Popen(
        args, env=dict(env), stdout=stdout, stderr=stderr, cwd=cwd, start_new_session=True
    )


class RunsProcesses:
    """The method of release 0.7 that subclasses override to change what is run."""

    def run_local_job(
        self,
        args: list[str],
        env: Mapping[str, str],
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        cwd: str | None = None,
    ) -> PopenProtocol:
        """Starts one process. Subclasses override it to change what is run (release 0.7).

        For a replica nothing is started yet: its supervisor starts the requested process.
        """
        if planning.get():
            return Planned([*args], env, cwd)
        return start_process(args, env, stdout, stderr, cwd)


def ask_hook(request: PopenRequest, ask: "Callable[..., object]") -> PopenRequest:
    """Returns the request with the changes of a subclass's ``run_local_job`` to each replica.

    Args:
        ask: the hook; it returns a ``Planned`` if it calls the method of ``LocalScheduler``.

    Raises:
        UnsupportedRequest: if it starts a process itself, which nobody would supervise.
    """
    token = planning.set(True)
    try:
        params = {
            name: [_asked(param, ask) for param in of_role]
            for name, of_role in request.role_params.items()
        }
    finally:
        planning.reset(token)
    return replace(request, role_params=params)


def _asked(param: ReplicaParam, ask: "Callable[..., object]") -> ReplicaParam:
    path = join_path(param.env.get("PATH"), os.environ.get("PATH"))
    env = {**os.environ, **param.env, "PATH": path}
    planned = ask(args=param.args, env=dict(env), stdout=None, stderr=None, cwd=param.cwd)
    if not isinstance(planned, Planned):
        msg = (
            "an override of `run_local_job` may change what is run, and must return what the "
            f"method of `LocalScheduler` returns; it returned a `{type(planned).__name__}`"
        )
        raise UnsupportedRequest(msg)
    changed = {n: v for n, v in planned.env.items() if env.get(n) != v}
    return replace(param, args=planned.args, env={**param.env, **changed}, cwd=planned.cwd)


class _LocalAppDef:
    """A job of this process. NeMo-Run creates these with two arguments, in ``_apps``."""

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
        """Stores the state with the current time."""
        self.last_updated = time.time()
        self.state = state

    def kill(self) -> None:
        """Ends the job, attached or not, and waits until all its processes are gone."""
        from ._client import end
        from ._store import Store

        store = Store()
        record = store.read(self.id)
        if record is not None and not store.view(record).terminal:
            end(store, record)

    @property
    def cut_off(self) -> bool:
        """Returns True if the job has ended, and still uses a file descriptor here."""
        return self._lifeline is not None and self._owner == os.getpid() and self._lifeline.cut

    def close(self) -> None:
        """Ends the job if it is attached to this process; a forked child ends nothing."""
        lifeline = self._lifeline  # which another thread may close meanwhile
        if lifeline is None or self._owner != os.getpid():
            return
        if not is_terminal(self.state):
            self.kill()
        lifeline.close()
        self._lifeline = None
