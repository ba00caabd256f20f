"""Starts the interpreter that will supervise a local job.

It is outside ``local_scheduler`` because the command line starts the interpreter first if a local
job is likely, so that it is ready when the job is known. An interpreter that gets no job ends with
the process that started it. Without this, ``run`` would wait for the interpreter to start.
"""

import os
import sys
from typing import TYPE_CHECKING

from torchx.errors import JobStartError

if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDER = ("schedulers", "local_scheduler")
_CODE = "import sys; sys.path.insert(0, {!r}); from _supervise.main import main; main()"


class Supervisor:
    """A started interpreter that waits for a job on the other end of ``channel``."""

    def __init__(self) -> None:
        """Starts it.

        Raises:
            JobStartError: if it cannot be started.
        """
        if not sys.executable:
            msg = "cannot start a local job: sys.executable does not name a Python interpreter"
            raise JobStartError(msg)
        import _socket

        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *_FOLDER)
        self.channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
        arguments = [sys.executable, "-I", "-S", "-c", _CODE.format(folder)]
        try:
            self.pid = os.posix_spawn(
                sys.executable, arguments, os.environ, file_actions=actions, setsid=_CAN_SETSID
            )
        except OSError as err:
            self.channel.close()
            msg = f"cannot start `{sys.executable}` to supervise the job: {err.strerror}"
            raise JobStartError(msg) from None
        finally:
            theirs.close()


_CAN_SETSID = sys.platform == "linux"
_waiting: list[Supervisor] = []
_meanwhile: "list[Callable[[], None]]" = []


def warm_up() -> None:
    """Starts a supervisor in advance, for the job that this process will submit next."""
    if not _waiting:
        _waiting.append(Supervisor())


def warm_up_for(argv: list[str]) -> None:
    """Calls ``warm_up`` if the command line looks like that of a local run.

    Only in a process of our own: the supervisor waits for a job until this process ends.
    """
    if not _may_run_locally(argv):
        return
    try:
        warm_up()
    except JobStartError:
        return  # reported when the job is submitted


def _may_run_locally(argv: list[str]) -> bool:
    if argv[:1] != ["run"] or len(argv) == 1:
        return False
    for flag in ("-s", "--scheduler"):
        if flag in argv and "local_cwd" not in argv:
            return False
    return not {"--dryrun", "--help", "-h", "--stdin"}.intersection(argv)


def while_starting(call: "Callable[[], None]") -> None:
    """Registers a call to be made once, while the supervisor starts the next job."""
    _meanwhile.append(call)


def do_meanwhile() -> None:
    """Makes the call registered by ``while_starting``."""
    while _meanwhile:
        _meanwhile.pop()()


def take() -> Supervisor:
    """Returns a supervisor that waits for its job: the one started in advance, or a new one."""
    return _waiting.pop() if _waiting else Supervisor()


def dismiss() -> None:
    """Ends a supervisor that got no job, and drops the call registered by ``while_starting``."""
    _meanwhile.clear()
    while _waiting:
        supervisor = _waiting.pop()
        supervisor.channel.close()
        try:
            os.waitpid(supervisor.pid, 0)
        except ChildProcessError:
            pass  # where SIGCHLD is ignored, the kernel does it
