"""One local job while it runs: starts its replicas, pumps their logs, restarts and ends them."""

import _socket
import errno
import os
import select
import sys
import time

from . import journal, tree
from .logs import ReplicaLog
from .tree import signal

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LINGER_S = 1.0
"""How long what a replica left in the background may go on once the job's replicas are done."""
KILL_WAIT_S = 5.0
"""How long to wait for killed processes to be gone before the job is given up on."""
STOP_TICK_S = 0.02
"""How often the processes that are being stopped are looked at."""
PIPE_BYTES = 1 << 20
# names of `torchx.settings`, which the supervisor cannot import
COOKIE = "TORCHX_LOCAL_JOB"
ATTEMPT = "TORCHX_ATTEMPT"
"""Environment variable by which every process of a job is known."""


class Replica:
    """One replica: what to run and the attempt that runs now."""

    __slots__ = (
        "args",
        "attempt",
        "code",
        "cwd",
        "dir",
        "ended_ns",
        "env",
        "index",
        "log",
        "pid",
        "restarts",
        "role",
        "session",
        "ticks",
    )  # fmt: skip

    def __init__(self, role: "RolePlan", index: int, directory: str) -> None:
        self.role = role
        self.index = index
        self.dir = directory
        self.args: list[str] = []
        self.env: dict[str, str] = {}
        self.cwd: str | None = None
        self.attempt = -1
        self.restarts = 0
        self.pid = 0
        self.session = 0
        """Process id of the latest attempt's leader, which is also its session's id."""
        self.ticks = 0
        self.code: int | None = None
        self.ended_ns = 0
        self.log: ReplicaLog | None = None

    @property
    def attempt_dir(self) -> str:
        return tree.attempt_dir(self.dir, self.attempt)


class RolePlan:
    """One role as the launcher described it."""

    __slots__ = ("index", "max_retries", "name", "policy", "replicas", "restarts")

    def __init__(self, index: int, spec: "dict[str, Any]") -> None:
        self.index = index
        self.name = spec["name"]
        self.max_retries = int(spec["max_retries"])
        self.policy = spec["policy"]
        self.restarts = 0
        self.replicas: list[Replica] = []
        base_args, base_env = spec["args"], spec["env"]
        vary = spec["vary"]
        for k, directory in enumerate(spec["dirs"]):
            replica = Replica(self, k, directory)
            args, env, gone, cwd = vary.get(k, (None, {}, (), None))
            replica.args = args or base_args
            replica.env = {**base_env, **env} if env else base_env
            if gone:
                replica.env = {n: v for n, v in replica.env.items() if n not in gone}
            replica.cwd = cwd or spec["cwd"]
            self.replicas.append(replica)


class StartFailure(Exception):
    """A replica could not be started; the message is for the user."""


class Supervisor:
    """Runs one job to its end; ``run`` returns once nothing of it is left."""

    def __init__(self, spec: "dict[str, Any]", lifeline_fd: int) -> None:
        self.spec = spec
        self.roles = [RolePlan(i, r) for i, r in enumerate(spec["roles"])]
        self.replicas = [r for role in self.roles for r in role.replicas]
        self.by_pid: dict[int, Replica] = {}
        self.job_dir = str(spec["job_dir"])
        self.grace_s = float(spec["grace_s"])
        self.journal_fd = os.open(
            os.path.join(self.job_dir, "journal"),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
            0o600,
        )
        self.pending = ""
        self.guard_pid = os.getppid()
        self.lifeline_fd = lifeline_fd
        self.poller = Poller()
        self.pipes: dict[int, tuple[Replica, ReplicaLog, int]] = {}
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.clients: dict[int, Client] = {}
        self.new_log_lines = False
        self.new_events = False
        self.final: tuple[str, str] | None = None
        """State and message to end with, once the job is being stopped."""
        self.restarting: list[Replica] | None = None
        """What is to be started again once it has stopped."""
        self.stop_since = 0.0
        self.kill_since = 0.0
        self.linger_since = 0.0
        self.app_restarts = 0
        self.log_problem = ""
        self.own_env: dict[str, str] = spec["environ"]
        self.executables: dict[tuple[str, str, str], str] = {}
        self.original_nofile = spec["nofile"]

    # -- starting ---------------------------------------------------------------------------

    def start(self) -> None:
        """Starts every replica, or none."""
        self._watch_signals()
        me, guard = os.getpid(), self.guard_pid
        host, boot = journal.dumps(self.spec["host"]), journal.dumps(tree.boot_id())
        self._log(
            f'["supervised", {time.time_ns()}, {host}, {boot}, {me}, {tree.start_ticks(me)}, '
            f"{guard}, {tree.start_ticks(guard)}]\n"
        )
        self._flush()
        self._listen()
        self._spawn(self.replicas)
        self._log(f'["state", {time.time_ns()}, "RUNNING", ""]\n')
        self._flush()

    def _spawn(self, replicas: "list[Replica]") -> None:
        """Forks one process for each of them and waits until all have reached their program.

        A process that cannot says so through one pipe, which ``exec`` closes.
        """
        errors_r, errors_w = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for n, replica in enumerate(replicas):
                self._fork(replica, n, devnull, errors_w)
        finally:
            os.close(errors_w)
            os.close(devnull)
        said = b""
        while chunk := os.read(errors_r, 4096):
            said += chunk
        os.close(errors_r)
        lines = []
        for replica in replicas:
            lines.append(
                f'["start", {time.time_ns()}, {replica.role.index}, {replica.index}, '
                f"{replica.attempt}, {replica.pid}, {replica.ticks}]\n"
            )
        self._log("".join(lines))
        if said:
            which, code, what = said.split(b"\n")[0].split(b" ", 2)
            failed = replicas[int(which)]
            raise StartFailure(
                f"replica {failed.role.name}/{failed.index} could not be started: "
                f"{os.strerror(int(code))}: `{what.decode('utf-8', 'replace')}`"
            )

    def _fork(self, replica: "Replica", n: int, devnull: int, errors_w: int) -> None:
        replica.attempt += 1
        replica.code = None
        folder = replica.attempt_dir
        try:
            os.makedirs(folder, exist_ok=True)
            out_r, out_w = os.pipe()
            err_r, err_w = os.pipe()
            log = ReplicaLog(folder, out_r, err_r)
        except OSError as err:
            where = f" `{err.filename}`" if err.filename else ""
            msg = f"replica {replica.role.name}/{replica.index}: {err.strerror}{where}"
            raise StartFailure(msg) from None
        env = self._environment(replica)
        program = self._executable(replica, env)
        me = os.getpid()
        pid = os.fork()
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
                os.write(errors_w, f"{n} {err.errno or 0} {step}\n".encode("utf-8", "replace"))
            finally:
                os._exit(127)
        os.close(out_w)
        os.close(err_w)
        replica.pid = replica.session = pid
        replica.ticks = tree.start_ticks(pid)
        self.by_pid[pid] = replica
        replica.log = log
        for stream in log.streams:
            _enlarge_pipe(stream.pipe_fd)
            os.set_blocking(stream.pipe_fd, False)
            self.pipes[stream.pipe_fd] = (replica, log, stream.kind)
            self.poller.add(stream.pipe_fd)

    def _restore_defaults(self) -> None:
        for name in ("SIGPIPE", "SIGXFSZ", "SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        if self.original_nofile:
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, self.original_nofile)

    def _environment(self, replica: "Replica") -> "dict[str, str]":
        env = {**self.own_env, **replica.env}
        path = [p for p in (replica.env.get("PATH"), self.own_env.get("PATH")) if p]
        if path:
            env["PATH"] = os.pathsep.join(p.strip(os.pathsep) for p in path)
        env.setdefault("PYTHONUNBUFFERED", "x")
        env[ATTEMPT] = str(replica.attempt)
        env[COOKIE] = str(self.spec["app_id"])
        default = os.path.join(replica.dir, "error.json")
        if env.get("TORCHELASTIC_ERROR_FILE") == default:
            env["TORCHELASTIC_ERROR_FILE"] = os.path.join(replica.attempt_dir, "error.json")
        return env

    def _executable(self, replica: "Replica", env: "dict[str, str]") -> str:
        key = (replica.args[0], env.get("PATH", ""), replica.cwd or "")
        if key not in self.executables:
            self.executables[key] = tree.find_executable(*key) or replica.args[0]
        return self.executables[key]

    # -- the loop ---------------------------------------------------------------------------

    def run(self) -> None:
        """Pumps and reaps until the job has ended and its record says so."""
        while True:
            self._reap()
            if self._advance():
                break
            self._tell()
            self._handle(self.poller.wait(self._timeout_s()))
        self._finish()

    def _timeout_s(self) -> float | None:
        return STOP_TICK_S if self.stop_since or self.linger_since else None

    def _handle(self, ready: "list[int]") -> None:
        try:
            for fd in ready:
                if fd in self.pipes:
                    self._pump(fd)
                else:
                    self.handlers[fd](fd)
        except OSError as err:
            self._log_failed(err)

    def _pump(self, fd: int) -> None:
        replica, log, kind = self.pipes[fd]
        self.new_log_lines = True
        if self.log_problem:
            for stream in log.streams:
                self._ignore(stream.pipe_fd)
            log.abandon()
            return
        if log.pump(log.streams[kind]):
            return
        self._ignore(fd)
        if log.open_pipes == 0 and replica.code is not None and replica.log is log:
            log.close()

    def _ignore(self, pipe_fd: int) -> None:
        if self.pipes.pop(pipe_fd, None):
            self.poller.remove(pipe_fd)

    def _log_failed(self, err: OSError) -> None:
        """Ends the job; what it still prints is dropped, so that its last words find room."""
        if not self.log_problem:
            self.log_problem = f"the logs cannot be written: {err.strerror}"
            self.stop("FAILED", self.log_problem)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            replica = self.by_pid.pop(pid, None)
            if replica is not None:
                self._exited(replica, os.waitstatus_to_exitcode(status))

    def _exited(self, replica: "Replica", code: int) -> None:
        replica.code = code
        replica.ended_ns = time.time_ns()
        replica.pid = 0
        self._log(
            f'["exit", {replica.ended_ns}, {replica.role.index}, {replica.index}, '
            f"{replica.attempt}, {code}]\n"
        )
        self.new_events = True
        if replica.log and replica.log.open_pipes == 0:
            replica.log.close()
        if code != 0 and self.final is None:
            self._maybe_restart(replica)

    def _maybe_restart(self, replica: "Replica") -> None:
        role = replica.role
        if self.restarting is not None and replica in self.restarting:
            return
        if role.policy == "REPLICA":
            if replica.restarts < role.max_retries:
                replica.restarts += 1
                self._restart([replica], replica, replica.restarts)
        elif role.policy == "ROLE":
            if role.restarts < role.max_retries:
                role.restarts += 1
                self._restart(role.replicas, replica, role.restarts)
        elif self.app_restarts < role.max_retries:
            self.app_restarts += 1
            self._restart(self.replicas, replica, self.app_restarts)

    def _restart(self, scope: "list[Replica]", cause: "Replica", restarts: int) -> None:
        self._log(
            f'["restart", {time.time_ns()}, {journal.dumps(cause.role.policy)}, '
            f"{cause.role.index}, {cause.index}, {restarts}]\n"
        )
        known = self.restarting or []
        self.restarting = known + [r for r in scope if r not in known]
        self._begin_stopping()

    def _begin_stopping(self) -> None:
        if not self.stop_since:
            self.stop_since = time.monotonic()
            self._signal_stopped(signal.SIGTERM)

    def stop(self, state: str, message: str) -> None:
        """Ends the whole job with that state; a second call changes nothing."""
        if self.final is None:
            self.final = (state, message)
            self.restarting = None
            self.stop_since = 0.0
            self.kill_since = 0.0
            self._begin_stopping()

    def _targets(self) -> "list[tree.Process]":
        """What is to be stopped and still lives."""
        below = tree.descendants(os.getpid())
        if self.final is not None:
            return below
        sessions = {r.session for r in self.restarting or ()}
        return [p for p in below if p.session in sessions or p.pgrp in sessions]

    def _signal_stopped(self, signum: int) -> None:
        if not tree.process(os.getpid()):  # no /proc: process groups are all there is
            for replica in self.restarting if self.restarting is not None else self.replicas:
                _kill_group(replica.session, signum)
            return
        for target in self._targets():
            tree.send(target, signum)

    def _advance(self) -> bool:
        """One step towards the end; ``True`` once nothing is left to wait for."""
        if self.stop_since:
            return self._advance_stop()
        if any(r.code is None for r in self.replicas):
            return False
        # all replicas are done; what they left behind gets a moment, then the usual end
        if not _has_children():
            return True
        now = time.monotonic()
        if not self.linger_since:
            self.linger_since = now
        if now - self.linger_since < LINGER_S:
            return False
        self.linger_since = 0.0
        self.stop(*self._outcome())
        return False

    def _advance_stop(self) -> bool:
        scope = self.replicas if self.final is not None else self.restarting or []
        exited = all(not r.pid for r in scope)
        if exited and not (_has_children() if self.final is not None else self._targets()):
            return self._stopped()
        now = time.monotonic()
        if self.kill_since:
            if now - self.kill_since > KILL_WAIT_S:
                return self._stopped()  # unkillable: waiting on a dead disk, say
            self._signal_stopped(signal.SIGKILL)
        elif now - self.stop_since >= self.grace_s:
            self.kill_since = now
            self._signal_stopped(signal.SIGKILL)
        return False

    def _stopped(self) -> bool:
        self.stop_since = self.kill_since = 0.0
        if self.final is not None:
            return True
        scope, self.restarting = self.restarting or [], None
        try:
            for replica in scope:
                self._close_log(replica)
            self._spawn(scope)
        except (StartFailure, OSError) as err:
            self.stop("FAILED", f"a restart failed: {err}")
        self._flush()
        return False

    def _outcome(self) -> "tuple[str, str]":
        failed = [r for r in self.replicas if r.code]
        if not failed:
            return "SUCCEEDED", ""
        first = min(failed, key=lambda r: r.ended_ns)
        return "FAILED", f"{first.role.name}/{first.index} {tree.describe_exit(first.code or 0)}"

    # -- ending -----------------------------------------------------------------------------

    def _close_log(self, replica: "Replica") -> None:
        log = replica.log
        replica.log = None
        if log is None:
            return
        for stream in log.streams:
            fd = stream.pipe_fd
            if fd < 0:
                continue
            self._ignore(fd)
            while not self.log_problem and log.pump(stream) and _readable(fd):
                pass
        if self.log_problem:
            log.abandon()
        else:
            log.close()

    def _finish(self) -> None:
        state, message = self.final or self._outcome()
        self._reap()
        for replica in self.replicas:
            try:
                self._close_log(replica)
            except OSError as err:
                self._log_failed(err)
                if state == "SUCCEEDED":
                    state, message = "FAILED", self.log_problem
        ended = time.time_ns()
        journal.free_reserve(self.job_dir)
        self._write_success(state, ended)
        self._log(f'["state", {ended}, "{state}", {journal.dumps(message)}]\n')
        self._flush()
        spec = self.spec
        journal.finish(
            str(spec["home"]),
            (str(spec["app_id"]), str(spec["session"]), str(spec["name"])),
            state,
            (int(spec["created_ns"]), ended),
        )
        for client in list(self.clients.values()):
            self._drop(client)

    def _write_success(self, state: str, ended_ns: int) -> None:
        """Writes the file whose presence says that the logs are complete, see 21 in the docs."""
        roles = {
            role.name: [
                {
                    "replica_id": r.index,
                    "pid": r.session,
                    "exitcode": r.code,
                    "stdout": os.path.join(r.attempt_dir, "stdout.log"),
                    "stderr": os.path.join(r.attempt_dir, "stderr.log"),
                    "error_file": r.env.get("TORCHELASTIC_ERROR_FILE", "<N/A>"),
                }
                for r in role.replicas
            ]
            for role in self.roles
        }
        log_dir = str(self.spec["app_log_dir"])
        data = {
            "app_id": self.spec["app_id"],
            "log_dir": log_dir,
            "final_state": state,
            "last_updated": ended_ns / 1e9,
            "roles": roles,
        }
        temporary = os.path.join(log_dir, ".SUCCESS.tmp")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                journal.write_all(fd, journal.dumps(data).encode())
            finally:
                os.close(fd)
            os.rename(temporary, os.path.join(log_dir, "SUCCESS"))
        except OSError as err:
            sys.stderr.write(f"cannot write {temporary}: {err}\n")

    # -- who listens ------------------------------------------------------------------------

    def _listen(self) -> None:
        """Opens the socket by which other processes follow the job and cancel it."""
        os.chdir(self.job_dir)  # a relative name keeps below the limit on socket paths
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        os.set_inheritable(listener.fileno(), False)
        listener.bind("sock")
        listener.listen(128)
        listener.setblocking(False)
        self.listener = listener
        self._on(listener.fileno(), self._accept)
        if self.spec["attached"]:
            self._on(self.lifeline_fd, self._launcher_gone)
            try:
                pid = int(self.spec["launcher_pid"])
                pidfd = os.pidfd_open(pid)
            except (AttributeError, OSError):
                return
            if tree.start_ticks(pid) == self.spec["launcher_ticks"]:
                self._on(pidfd, self._launcher_gone)
            else:
                os.close(pidfd)

    def _on(self, fd: int, handler: "Callable[[int], None]") -> None:
        self.handlers[fd] = handler
        self.poller.add(fd)

    def _off(self, fd: int) -> None:
        self.poller.remove(fd)
        del self.handlers[fd]

    def _launcher_gone(self, fd: int) -> None:
        self._off(fd)
        self.stop(
            "CANCELLED",
            "the process that launched this job ended, and the job with it; "
            "a job launched with `detach` goes on",
        )

    def _accept(self, _fd: int) -> None:
        try:
            fd, _ = self.listener._accept()  # type: ignore[attr-defined]  # CPython's own
        except OSError as err:
            if err.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EMFILE, errno.ENFILE):
                raise
            return
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=fd)
        connection.setblocking(False)
        self.clients[fd] = Client(connection)
        self._on(fd, self._hear)

    def _hear(self, fd: int) -> None:
        client = self.clients[fd]
        try:
            said = client.connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._drop(client)
            return
        for word in said.decode("ascii", "replace").split():
            if word == "cancel":
                self.stop("CANCELLED", "")
            client.wants_logs = client.wants_logs or word == "logs"
        client.tell()

    def _drop(self, client: "Client") -> None:
        fd = client.connection.fileno()
        self._off(fd)
        del self.clients[fd]
        client.connection.close()

    def _tell(self) -> None:
        """Wakes who follows, after the files are written."""
        self._flush()
        if self.clients and (self.new_events or self.new_log_lines):
            for client in list(self.clients.values()):
                if (self.new_events or client.wants_logs) and not client.tell():
                    self._drop(client)
        self.new_events = self.new_log_lines = False

    # -- small things -----------------------------------------------------------------------

    def _watch_signals(self) -> None:
        r, w = os.pipe()
        os.set_blocking(r, False)
        os.set_blocking(w, False)
        signal.set_wakeup_fd(w)
        self._on(r, self._signalled)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: None)

    def _signalled(self, fd: int) -> None:
        try:
            numbers = os.read(fd, 4096)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            if os.getppid() != self.guard_pid:
                self.stop("FAILED", "the process that guards this job was killed")
            else:
                self.stop("CANCELLED", "the process that supervises this job was told to end")

    def _log(self, lines: str) -> None:
        self.pending += lines
        self.new_events = True

    def _flush(self) -> None:
        if not self.pending:
            return
        lines, self.pending = self.pending, ""
        try:
            journal.write_all(self.journal_fd, lines.encode("utf-8", "replace"))
        except OSError:
            journal.free_reserve(self.job_dir)  # gives back the space that was kept for this
            try:
                journal.write_all(self.journal_fd, b"\n" + lines.encode("utf-8", "replace"))
            except OSError as err:
                sys.stderr.write(f"cannot write the journal: {err}\n")


class Client:
    """Somebody who follows the job."""

    __slots__ = ("connection", "wants_logs")

    def __init__(self, connection: "_socket.socket") -> None:
        self.connection = connection
        self.wants_logs = False

    def tell(self) -> bool:
        """Sends one byte; ``False`` when nobody is there any more."""
        try:
            self.connection.send(b".")
        except BlockingIOError:
            pass  # it has not read the earlier ones yet, so it will wake anyway
        except OSError:
            return False
        return True


class Poller:
    """``epoll`` where there is one, ``poll`` elsewhere."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = None if self._epoll else select.poll()

    def add(self, fd: int) -> None:
        if self._epoll:
            self._epoll.register(fd, select.EPOLLIN)
        elif self._poll:
            self._poll.register(fd, select.POLLIN)

    def remove(self, fd: int) -> None:
        try:
            if self._epoll:
                self._epoll.unregister(fd)
            elif self._poll:
                self._poll.unregister(fd)
        except (OSError, KeyError, ValueError):
            pass  # closed already, which removed it

    def wait(self, timeout_s: float | None) -> "list[int]":
        if self._epoll:
            return [fd for fd, _ in self._epoll.poll(-1 if timeout_s is None else timeout_s)]
        assert self._poll is not None
        timeout_ms = None if timeout_s is None else timeout_s * 1000
        return [fd for fd, _ in self._poll.poll(timeout_ms)]


def _has_children() -> bool:
    """Whether anything of the job lives: all that is orphaned below us becomes our child."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _readable(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _kill_group(pgid: int, signum: int) -> None:
    if pgid > 0:
        try:
            os.killpg(pgid, signum)
        except OSError:
            pass


def _enlarge_pipe(fd: int) -> None:
    """Lets a replica that prints much run ahead; the kernel may refuse."""
    try:
        import fcntl

        fcntl.fcntl(fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
    except OSError:
        pass
