"""The process that runs the replicas of one local job, writes their logs, and outlives the
launcher.

Two processes guard each other. The *guard* is the first; it forks the *supervisor* and waits. Both
are sub-reapers, so whatever a replica leaves behind, in a session of its own or not, becomes a
child of the supervisor, or of the guard if the supervisor is killed. Replicas are killed by the
kernel when the supervisor dies (``PR_SET_PDEATHSIG``), their descendants by the guard.
"""

import _socket
import marshal
import os
import sys

from . import journal, tree
from .format import FDS_PER_REPLICA, FDS_RESERVED
from .job import Supervisor
from .plan import KILL_WAIT_S
from .processes import StartFailure, end_leftovers
from .tree import signal

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from typing import Any

LOCK_FD = 3
"""Open, and therefore locked, until both processes are gone."""
ERRNO_BASE = 100
"""Exit codes above it are the system error that ended a supervisor."""
HIGHEST_INHERITED_FD = 4096
"""Limit on the launcher's inherited files that are closed."""


def _raise_fd_limit(needed: int) -> "tuple[tuple[int, int] | None, str]":
    """Raises the limit for pipes and files; returns the previous limits, and the error, if any."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            return (soft, hard), (
                f"the job needs {needed} open files, but the limit is {hard}; "
                f"raise it (`ulimit -n {needed}`) or run fewer replicas"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return (soft, hard), ""


def _load_ahead() -> None:
    """Imports what every job needs (2 ms), while the launcher still prepares this one."""
    for name in ("ctypes", "fcntl", "resource"):
        try:
            __import__(name)
        except ImportError:  # its user does without it, or says so
            continue


def _receive_spec(channel: "_socket.socket") -> "dict[str, Any]":
    """Reads the job; its log becomes fd 2, its lock fd 3."""
    header, ancillary, _, _ = channel.recvmsg(8, 64)
    if not header:
        os._exit(0)  # the launcher gave up before it sent a job
    rights = ancillary[0][2]
    log, lock = (int.from_bytes(rights[i : i + 4], sys.byteorder) for i in (0, 4))
    os.dup2(log, 2)
    os.dup2(lock, LOCK_FD, inheritable=False)
    os.closerange(LOCK_FD + 1, HIGHEST_INHERITED_FD)
    size = int.from_bytes(header, "little")
    parts = []
    while size:
        part = channel.recv(min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    spec: dict[str, Any] = marshal.loads(b"".join(parts))
    return spec


def _reply(channel: "_socket.socket", text: str) -> None:
    try:
        channel.sendall(text.encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # the launcher is gone, as the lifeline also shows


def _supervise(spec: "dict[str, Any]", channel: "_socket.socket", guard_pid: int) -> int:
    tree.prctl(tree.PR_SET_CHILD_SUBREAPER, 1)
    tree.prctl(tree.PR_SET_PDEATHSIG, 15)
    if os.getppid() != guard_pid:
        return 1
    supervisor = Supervisor(spec, lifeline_fd=0)
    try:
        supervisor.start()
    except (StartFailure, OSError) as err:
        end_leftovers(KILL_WAIT_S)
        _reply(channel, f"failed {err}")
        return 3
    if not spec["attached"]:
        tree.mark_detached()
    _reply(channel, "started")
    supervisor.run()
    return 0


def _fill_standard() -> None:
    """Opens closed standard descriptors, so that other files do not take their place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= LOCK_FD:
        pass
    os.close(fd)


def _close_standard(*fds: int) -> None:
    devnull = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in fds:
        os.dup2(devnull, fd)
    os.close(devnull)


def _guard(spec: "dict[str, Any]", supervisor_pid: int) -> None:
    """Waits for the supervisor; if it was killed, ends its processes and completes the record."""
    _close_standard(0)
    if not spec["attached"]:
        tree.mark_detached()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the supervisor answers them
    status = 0
    while True:
        pid, found = os.waitpid(-1, 0)
        if pid == supervisor_pid:
            status = found
            break
    code = os.waitstatus_to_exitcode(status)
    if code in (0, 3):
        return
    end_leftovers(KILL_WAIT_S)
    # `_core.exits` cannot be imported here, and this is the only exit code to describe
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    if code > ERRNO_BASE:
        how = f"had to give up: {os.strerror(code - ERRNO_BASE)}"
    message = f"the process that supervised this job (pid {supervisor_pid}) {how}"
    try:
        journal.complete(spec, f"{message}; its replicas were ended")
    except OSError as err:  # for example, a full disk: the next reader does it
        journal.complain(f"cannot complete the record: {err}\n")


def main() -> None:
    """Entry point: fd 0 delivers the job, receives the answer, and is the lifeline."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would make children vanish
    _fill_standard()
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=0)
    _load_ahead()
    spec = _receive_spec(channel)
    _close_standard(1)
    needed = FDS_RESERVED + FDS_PER_REPLICA * sum(len(r["dirs"]) for r in spec["roles"])
    limits, problem = _raise_fd_limit(needed)
    if problem:
        _reply(channel, f"failed {problem}")
        os._exit(3)
    spec["nofile"] = limits
    if os.fork():
        os._exit(0)  # the launcher reaps this one at once and never has a child of ours
    tree.prctl(tree.PR_SET_CHILD_SUBREAPER, 1)
    guard_pid = os.getpid()
    supervisor_pid = os.fork()
    if supervisor_pid == 0:
        code = 1
        try:
            code = _supervise(spec, channel, guard_pid)
        except OSError as err:
            journal.complain(f"{type(err).__name__}: {err}\n")
            code = ERRNO_BASE + (err.errno or 0) % (256 - ERRNO_BASE)
        except BaseException:  # noqa: BLE001 - said in its log; the guard ends the job
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    _guard(spec, supervisor_pid)
    os._exit(0)
