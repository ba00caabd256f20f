"""One submission: records a job and hands it to a supervisor, or rolls back."""

import _socket as socket  # the public module takes 3 ms to import
import marshal
import os
import select
import sys
import time
from typing import Any

from torchx._startup import local_supervisor
from torchx._startup.lazy_logger import get_logger
from torchx._startup.uninterrupted import Uninterrupted
from torchx.errors import JobStartError
from torchx.schedulers.api import ends_on_failure
from torchx.settings import ENV_TORCHX_KEEP_JOBS
from torchx.specs._serialize import app_to_json
from torchx.specs.api import AppDef

from . import _client
from ._folders import own_logs_dir
from ._options import Opts
from ._request import PopenRequest, join_path, supervisor_roles
from ._store import Store
from ._supervise import tree
from ._supervise.format import FDS_PER_REPLICA, FDS_RESERVED, KEEP

ABORT_EXTRA_S = 15.0
"""Seconds beyond its grace period that the end of a rolled-back job may take."""
_FEW_JOBS_BYTES = 60_000
"""An index of this size lists fewer jobs than are kept, which saves looking."""

logger = get_logger(__name__)


class Lifeline:
    """Keeps an attached job alive: the job ends when this is closed, or with this process."""

    def __init__(self, channel: socket.socket) -> None:
        # a number, not a socket: garbage collection of a scheduler must not end jobs
        self._fd = channel.detach()

    @property
    def cut(self) -> bool:
        """True if the other end is closed: the job has ended."""
        if self._fd < 0:
            return False
        poller = select.poll()
        poller.register(self._fd, select.POLLHUP)
        return bool(poller.poll(0))

    def close(self) -> None:
        """Closes the lifeline, which ends the job. In a forked child the job goes on."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Launch:
    """The launch of a job. An interruption at any point can be rolled back.

    Args:
        data: the record of the job.
    """

    def __init__(self, store: Store, request: PopenRequest, data: "dict[str, Any]") -> None:
        self._store = store
        self._request = request
        self._data = data
        self._recorded = False
        self._own_dirs: list[str] = []
        self._lock = -1
        self._supervisor: local_supervisor.Supervisor | None = None
        self._uninterrupted = Uninterrupted(self._run)

    def run(self) -> Lifeline | None:
        """Starts every replica, or none; returns when all are running.

        Returns:
            The lifeline of an attached job, ``None`` for a detached one.

        Raises:
            JobStartError: if a replica cannot be started; call ``undo`` then, as after any error.
        """
        try:
            return self._uninterrupted.result()
        except JobStartError:
            raise
        except OSError as err:  # for example, too many open files
            msg = f"the job cannot be started: {err.strerror or err}"
            raise JobStartError(msg) from None

    def _run(self) -> Lifeline | None:
        request = self._request
        job_dir, self._lock = self._store.create(request.app_id, self._data)
        self._recorded = True
        self._own_dirs = _missing_dirs(request.log_dir)
        _make_log_dirs(request)
        spec = {
            **self._data,
            "app": None,
            "cfg": None,
            "app_log_dir": request.log_dir,
            "launcher_pid": os.getpid(),
            "launcher_ticks": tree.start_ticks(os.getpid()),
            "job_dir": job_dir,
            "home": self._store.home,
            "environ": dict(os.environ),
        }
        answer = self._hand_over(spec)
        if answer != "started":
            raise JobStartError(_start_failure(answer, job_dir))
        assert self._supervisor is not None
        channel = self._supervisor.channel
        if self._data["attached"]:
            self._supervisor = None
            return Lifeline(channel)
        try:
            channel.sendall(KEEP)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the job has ended already
        self._supervisor = None
        channel.close()
        return None

    def undo(self) -> None:
        """Ends what was started and removes what was created, but nothing that existed before."""
        self._uninterrupted.stop(self._hang_up)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._supervisor is not None:
            self._supervisor.channel.close()  # it ends the job, if it has received it
            _reap(self._supervisor.pid)
            self._supervisor = None
        if not self._recorded:
            return
        app_id = self._request.app_id
        record = self._store.read(app_id)
        if record is not None:
            _client.ask_to_end(record.path)
            if not _client.wait_for_lock(self._store, app_id, record.grace_s + ABORT_EXTRA_S):
                return  # it cannot be ended, so its record must stay
            if self._store.view(record).terminal:
                self._store.forget(record)
        self._store.discard(app_id)
        _remove_log_dirs(self._request, self._own_dirs)

    def _hang_up(self) -> None:
        """Makes a launch fail that waits for its supervisor."""
        supervisor = self._supervisor
        if supervisor is not None:
            try:
                supervisor.channel.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed: there is nothing to wait for

    def _hand_over(self, spec: "dict[str, Any]") -> str:
        """Sends the job to a supervisor; returns its answer."""
        self._supervisor = supervisor = local_supervisor.take()
        channel = supervisor.channel
        log = os.open(
            os.path.join(spec["job_dir"], "supervisor.log"),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        try:
            _send(channel, marshal.dumps(spec), (log, self._lock))
        finally:
            os.close(log)
        lock, self._lock = self._lock, -1
        os.close(lock)
        local_supervisor.do_meanwhile()
        answer = _answer(channel)
        _reap(supervisor.pid)  # it forks the lasting ones and exits
        return answer


def record_data(
    request: PopenRequest, app: AppDef | None, opts: Opts, session: str, cwd: str
) -> "dict[str, Any]":
    """Returns the record of a job, which its supervisor also gets.

    Args:
        app: ``None`` for a request that was built by hand.
        cwd: directory for replicas that name none.
    """
    retries = {r.name: (r.max_retries, r.retry_policy.name) for r in app.roles} if app else {}
    return {
        "version": 1,
        "app_id": request.app_id,
        "name": app.name if app else request.app_id.rpartition("-")[0],
        "session": session,
        "created_ns": time.time_ns(),
        "host": _client.host(),
        "boot_id": tree.boot_id(),
        "attached": not opts.detach,
        "grace_s": opts.grace_s,
        "ends_on_failure": ends_on_failure(opts.on_failure),
        "log_dir": request.log_dir,
        "own_logs": request.log_dir.startswith(os.path.join(own_logs_dir(), "")),
        "app": app_to_json(app) if app else None,
        "cfg": {k: v for k, v in opts.items() if k in Opts.__dataclass_fields__},
        "roles": supervisor_roles(request, retries, cwd),
    }


def check_startable(request: PopenRequest, parent_path: str, cwd: str) -> None:
    """Raises ``JobStartError`` for programs that cannot be started; starts nothing.

    Args:
        parent_path: the launcher's ``PATH``, which is appended to the replicas' one.
    """
    check_descriptors(sum(len(dirs) for dirs in request.role_log_dirs.values()))
    checked = set()
    for name, params in request.role_params.items():
        for param in params:
            path = join_path(param.env.get("PATH"), parent_path)
            folder = param.cwd or cwd
            key = (param.args[0], path, folder)
            if key in checked:
                continue
            checked.add(key)
            if not os.path.isdir(folder):
                msg = f"role `{name}`: the working directory `{folder}` does not exist"
                raise JobStartError(msg)
            if tree.find_executable(*key) is None:
                raise JobStartError(_no_program(name, *key))


def check_descriptors(replicas: int) -> None:
    """Raises ``JobStartError`` for more replicas than a process may have open files for."""
    import resource

    needed = FDS_RESERVED + FDS_PER_REPLICA * replicas
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < needed:
        msg = (
            f"the job needs {needed} open files, but the limit is {hard}; "
            f"raise it (`ulimit -n {needed}`) or run fewer replicas"
        )
        raise JobStartError(msg)


def _no_program(role: str, program: str, path: str, cwd: str) -> str:
    if "/" in program:
        full = os.path.join(cwd, program)
        if os.path.isdir(full):
            what = f"`{full}` is a directory"
        elif os.path.exists(full):
            what = f"`{full}` is not executable, `chmod +x` it"
        else:
            what = f"`{full}` does not exist"
    else:
        what = f"`{program}` is in none of the directories of PATH ({path})"
    return f"role `{role}`: the entrypoint cannot be run: {what}"


# -- the conversation with the supervisor --------------------------------------------------------


def _send(channel: socket.socket, data: bytes, fds: tuple[int, int]) -> None:
    """Sends the size with the file descriptors, then the data."""
    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    try:
        channel.sendmsg(
            [len(data).to_bytes(8, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        )
        channel.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended early; its answer or its log has the reason


def _answer(channel: socket.socket) -> str:
    said = b""
    while not said.endswith(b"\n"):
        try:
            part = channel.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        said += part
    return said.decode("utf-8", "replace").strip()


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # where SIGCHLD is ignored, the kernel does it


def _start_failure(answer: str, job_dir: str) -> str:
    if answer.startswith("failed "):
        return answer.removeprefix("failed ")
    try:
        with open(os.path.join(job_dir, "supervisor.log"), errors="replace") as f:
            last = f.read().strip().split("\n")[-1]
    except OSError:
        last = ""
    return f"the process that supervises the job ended early: {last or 'it left no message'}"


# -- the folders of logs -------------------------------------------------------------------------


def _missing_dirs(path: str) -> "list[str]":
    """Returns the folders that must be created for ``path``, innermost first."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _make_log_dirs(request: PopenRequest) -> None:
    try:
        os.makedirs(request.log_dir)
        for dirs in request.role_log_dirs.values():
            for path in dirs:
                os.makedirs(path)
    except OSError as err:
        msg = f"cannot make the log directory `{err.filename}`: {err.strerror}"
        raise JobStartError(msg) from None


def _remove_log_dirs(request: PopenRequest, own_dirs: "list[str]") -> None:
    """Undoes ``_make_log_dirs``: removes only what that call created."""
    import shutil

    if request.log_dir in own_dirs:
        shutil.rmtree(request.log_dir, ignore_errors=True)
        for path in own_dirs[1:]:
            try:
                os.rmdir(path)
            except OSError:
                return


def keep_to_limit(store: Store) -> None:
    """Removes records beyond the limit; a failure does not affect the launched job."""
    try:
        size = os.stat(os.path.join(store.home, "index")).st_size
        if size < _FEW_JOBS_BYTES and ENV_TORCHX_KEEP_JOBS not in os.environ:
            return
        from . import _prune

        _prune.keep_to_limit(store)
    except OSError as err:
        logger.debug("old records stay: %s", err)
