"""The process that runs the replicas of one local job, keeps their logs, outlives the launcher.

Two processes guard each other. The *guard* is the first; it forks the *supervisor* and waits. Both
are sub-reapers, so whatever a replica leaves behind, in a session of its own or not, becomes a
child of the supervisor, or of the guard if the supervisor is killed. Replicas are killed by the
kernel when the supervisor dies (``PR_SET_PDEATHSIG``), their descendants by the guard.
"""

import marshal
import os
import sys
import time

from . import journal, tree
from .job import KILL_WAIT_S, StartFailure, Supervisor
from .tree import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FDS_PER_REPLICA = 6
FDS_RESERVED = 64


def _raise_fd_limit(needed: int) -> "tuple[tuple[int, int] | None, str]":
    """Makes room for the pipes and files; returns the limits before and what is wrong, if so."""
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


def _read_spec(fd: int) -> "dict[str, Any]":
    size = int.from_bytes(_read_exactly(fd, 8), "little")
    spec: dict[str, object] = marshal.loads(_read_exactly(fd, size))
    return spec


def _read_exactly(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(fd, size)
        if not part:
            os._exit(0)  # the launcher gave up before there was anything to do
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _reply(fd: int, text: str) -> None:
    try:
        journal.write_all(fd, text.encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # the launcher is gone; the lifeline tells the same


def _supervise(spec: "dict[str, Any]", guard_pid: int) -> int:
    tree.prctl(tree.PR_SET_CHILD_SUBREAPER, 1)
    tree.prctl(tree.PR_SET_PDEATHSIG, 15)
    if os.getppid() != guard_pid:
        return 1
    supervisor = Supervisor(spec, lifeline_fd=0)
    try:
        supervisor.start()
    except (StartFailure, OSError) as err:
        end_leftovers()
        _reply(1, f"failed {err}")
        return 3
    _reply(1, "started")
    devnull = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(devnull, 1)
    if not spec["attached"]:
        os.dup2(devnull, 0)
    os.close(devnull)
    supervisor.run()
    return 0


def _guard(spec: "dict[str, Any]", supervisor_pid: int) -> None:
    """Waits for the supervisor; if it was killed, ends what it left and completes the record."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(devnull, fd)
    os.close(devnull)
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
    end_leftovers()
    journal.complete(
        spec,
        f"the process that supervised this job (pid {supervisor_pid}) {tree.describe_exit(code)}; "
        "its replicas were ended",
    )


def end_leftovers() -> None:
    """Kills every process below this one."""
    deadline = time.monotonic() + KILL_WAIT_S
    while time.monotonic() < deadline:
        for target in tree.descendants(os.getpid()):
            tree.send(target, 9)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def main() -> None:
    """Entry point: fd 0 brings the request and then stays the lifeline, fd 1 takes the answer.

    fd 2 is the supervisor's own log and fd 3 the locked lock file, held until both are gone.
    """
    os.setsid()
    spec = _read_spec(0)
    roles: list[dict[str, list[str]]] = spec["roles"]
    needed = FDS_RESERVED + FDS_PER_REPLICA * sum(len(r["dirs"]) for r in roles)
    limits, problem = _raise_fd_limit(needed)
    if problem:
        _reply(1, f"failed {problem}")
        os._exit(3)
    spec["nofile"] = limits
    if os.fork():
        os._exit(0)  # the launcher reaps this one at once and never has a child of ours
    os.set_inheritable(3, False)
    tree.prctl(tree.PR_SET_CHILD_SUBREAPER, 1)
    guard_pid = os.getpid()
    supervisor_pid = os.fork()
    if supervisor_pid == 0:
        code = 1
        try:
            code = _supervise(spec, guard_pid)
        except BaseException:  # noqa: BLE001 - said in its log; the guard ends the job
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    _guard(spec, supervisor_pid)
    os._exit(0)
