"""The processes of one local job: starts, reaps and signals them, and checks which are alive."""

import os
import time

from . import tree
from .logs import Pumps, ReplicaLog, Stamps
from .tree import signal

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .plan import Replica

# names of `torchx.settings`, which the supervisor cannot import
COOKIE = "TORCHX_LOCAL_JOB"
"""Environment variable that identifies every process of a job."""
ATTEMPT = "TORCHX_ATTEMPT"
_DEFAULTS = ("SIGPIPE", "SIGXFSZ", "SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD")


class StartFailure(Exception):
    """A replica could not be started; the message is for the user."""


class Processes:
    """All descendants of the supervisor of a job.

    Args:
        spec: the job as the launcher described it.
        pumps: readers of the replicas' output.
    """

    def __init__(self, spec: "dict[str, Any]", pumps: "Pumps") -> None:
        self._app_id = str(spec["app_id"])
        self._environ: dict[str, str] = spec["environ"]
        self._nofile: tuple[int, int] | None = spec["nofile"]
        self._pumps = pumps
        self._by_pid: dict[int, Replica] = {}
        self._logs: dict[Replica, ReplicaLog] = {}
        self._programs: dict[tuple[str, str, str], str] = {}
        self._below: list[tree.Process] | None = None
        """Descendants found since the last change; ``None`` if not searched yet."""

    # -- starting ---------------------------------------------------------------------------

    def start(self, replicas: "Sequence[Replica]") -> "tuple[list[Replica], str]":
        """Starts an attempt of each of them and waits until all have executed their program.

        A process that cannot reports it through a pipe, which ``exec`` closes.

        Returns:
            The replicas that have a process now, and the error; empty if there is none.
        """
        forked: list[Replica] = []
        errors_r, errors_w = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        problem = ""
        try:
            for replica in replicas:
                self._fork(replica, devnull, errors_w, len(forked))
                forked.append(replica)
        except StartFailure as err:
            problem = str(err)
        finally:
            os.close(errors_w)
            os.close(devnull)
        said = b""
        while chunk := os.read(errors_r, 4096):
            said += chunk
        os.close(errors_r)
        if said:
            which, code, what = said.split(b"\n")[0].split(b" ", 2)
            problem = (
                f"replica {forked[int(which)].name} could not be started: "
                f"{os.strerror(int(code))}: `{what.decode('utf-8', 'replace')}`"
            )
        return forked, problem

    def _fork(self, replica: "Replica", devnull: int, errors_w: int, number: int) -> None:
        replica.attempt += 1
        log, out_w, err_w = _open_log(replica, self._pumps.stamps)
        env = self._environment(replica)
        program = self._program(replica, env)
        me = os.getpid()
        try:
            pid = os.fork()
        except OSError as err:
            for fd in (out_w, err_w):
                os.close(fd)
            log.abandon()
            msg = f"replica {replica.name} could not be started: {_no_fork(err)}"
            raise StartFailure(msg) from None
        if pid == 0:
            step = program
            try:
                os.setsid()
                tree.prctl(tree.PR_SET_PDEATHSIG, 9)
                if os.getppid() != me:
                    os._exit(125)
                os.dup2(devnull, 0)
                os.dup2(out_w, 1)
                os.dup2(err_w, 2)
                self._restore_defaults()
                if replica.cwd:
                    step = replica.cwd
                    os.chdir(replica.cwd)
                step = program
                os.execve(program, replica.args, env)
            except OSError as err:
                text = f"{number} {err.errno or 0} {step}\n"
                os.write(errors_w, text.encode("utf-8", "replace"))
            finally:
                os._exit(127)
        os.close(out_w)
        os.close(err_w)
        replica.pid, replica.ticks = pid, tree.start_ticks(pid)
        self._by_pid[pid] = replica
        self._logs[replica] = log
        self._pumps.add(log)

    def _restore_defaults(self) -> None:
        for name in _DEFAULTS:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        if self._nofile:
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, self._nofile)

    def _environment(self, replica: "Replica") -> "dict[str, str]":
        env = {**self._environ, **replica.env}
        path = [p for p in (replica.env.get("PATH"), self._environ.get("PATH")) if p]
        if path:
            env["PATH"] = os.pathsep.join(p.strip(os.pathsep) for p in path)
        env.setdefault("PYTHONUNBUFFERED", "x")
        env[ATTEMPT] = str(replica.attempt)
        env[COOKIE] = self._app_id
        default = f"{replica.dir}/error.json"
        if env.get("TORCHELASTIC_ERROR_FILE") == default:
            env["TORCHELASTIC_ERROR_FILE"] = f"{replica.attempt_dir}/error.json"
        return env

    def _program(self, replica: "Replica", env: "dict[str, str]") -> str:
        key = (replica.args[0], env.get("PATH", ""), replica.cwd or "")
        if key not in self._programs:
            self._programs[key] = tree.find_executable(*key) or replica.args[0]
        return self._programs[key]

    # -- ending -----------------------------------------------------------------------------

    def reap(self) -> "list[tuple[Replica, int]]":
        """Returns the replicas that have ended since the last call, with their exit codes."""
        self._below = None
        found = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            replica = self._by_pid.pop(pid, None)
            if replica is not None:
                if replica in self._logs:
                    self._pumps.exited(self._logs[replica])
                found.append((replica, os.waitstatus_to_exitcode(status)))
        return found

    def signal(self, number: int, replicas: "Sequence[Replica] | None") -> None:
        """Signals all descendants of these replicas, of all replicas for ``None``."""
        self._below = None
        if not tree.process(os.getpid()):  # no /proc: only process groups are available
            for replica in self._logs if replicas is None else replicas:
                _kill_group(replica.pid, number)
            return
        for target in self._targets(replicas):
            tree.send(target, number)
        self._below = None

    def left(self, replicas: "Sequence[Replica] | None") -> bool:
        """Returns True if a process of these replicas is alive, of any for ``None``."""
        if replicas is not None:
            return bool(self._targets(replicas))
        # orphans below us become our children
        if not _has_children():
            return False
        below, detached = tree.below(os.getpid())
        self._below = below
        # the rest may be detached jobs that were launched from here
        return bool(below) or not detached

    def _targets(self, replicas: "Sequence[Replica] | None") -> "list[tree.Process]":
        if self._below is None:
            self._below, _ = tree.below(os.getpid())
        if replicas is None:
            return self._below
        sessions = {replica.pid for replica in replicas}
        return [p for p in self._below if p.session in sessions or p.pgrp in sessions]

    def close_log(self, replica: "Replica") -> None:
        """Writes the rest of an ended replica's output, and ends its log."""
        log = self._logs.pop(replica, None)
        if log is not None:
            self._pumps.close(log)


def _open_log(replica: "Replica", stamps: Stamps) -> "tuple[ReplicaLog, int, int]":
    """Opens the log of an attempt; returns it and the write ends of its two pipes."""
    fds: list[int] = []
    try:
        os.makedirs(replica.attempt_dir, exist_ok=True)
        fds += os.pipe()
        fds += os.pipe()
        out_r, out_w, err_r, err_w = fds
        return ReplicaLog(replica.attempt_dir, (out_r, err_r), stamps), out_w, err_w
    except OSError as err:
        for fd in fds:
            os.close(fd)
        where = f" `{err.filename}`" if err.filename else ""
        msg = f"replica {replica.name}: {err.strerror}{where}"
        raise StartFailure(msg) from None


def _no_fork(err: OSError) -> str:
    """Returns why no process can be started, and what to do about it."""
    if not isinstance(err, BlockingIOError):
        return str(err.strerror)
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    known = "" if limit == resource.RLIM_INFINITY else f" of {limit}"
    return (
        f"the limit{known} on the processes of a user (`ulimit -u`) or of this machine is reached; "
        "raise it or run fewer replicas"
    )


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _kill_group(pgid: int, number: int) -> None:
    if pgid > 0:
        try:
            os.killpg(pgid, number)
        except OSError:
            pass


def end_leftovers(longest_s: float) -> None:
    """Kills every process below this one, except detached jobs."""
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline:
        below, detached = tree.below(os.getpid())
        for target in below:
            tree.send(target, 9)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if detached and not below:
            return
        time.sleep(0.005)
