"""All that leaves the process: starts supervisors, talks to them, ends what they left behind."""

import _socket as socket  # the public module takes 3 ms to import
import marshal
import os
import sys
import time
from typing import Any

from torchx._startup import local_supervisor
from torchx.errors import BackendUnavailable, JobStartError
from torchx.settings import ENV_TORCHX_LOCAL_JOB

from ._record import JobRecord
from ._store import Store
from ._supervise import journal, tree

CANCEL_ANSWER_S = 5.0
"""How long a supervisor may take to answer before it counts as stuck."""
END_EXTRA_S = 15.0
"""How long the end of a job may take beyond its grace period before its supervisor is killed."""


class Lifeline:
    """Keeps an attached job alive: the job ends when this is closed, or with this process."""

    def __init__(self, channel: socket.socket) -> None:
        # a number, not a socket: a job does not end because its scheduler was garbage
        self._fd = channel.detach()

    def close(self) -> None:
        """Lets go of the job. In a forked child this does nothing to the job."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def start(store: Store, job_dir: str, lock: int, spec: "dict[str, Any]") -> Lifeline | None:
    """Hands a recorded job to a supervisor and waits until every replica runs.

    Args:
        lock: file descriptor of the job's lock; the supervisor takes it over.
        spec: what ``_supervise.main`` reads.

    Returns:
        The lifeline of an attached job, ``None`` for a detached one.

    Raises:
        JobStartError: if a replica cannot be started; none is left running then.
    """
    spec = {
        **spec,
        "launcher_pid": os.getpid(),
        "launcher_ticks": tree.start_ticks(os.getpid()),
        "job_dir": job_dir,
        "home": store.home,
        "environ": dict(os.environ),
    }
    supervisor = local_supervisor.take()
    channel = supervisor.channel
    log = os.open(
        os.path.join(job_dir, "supervisor.log"),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
        0o600,
    )
    try:
        _send(channel, marshal.dumps(spec), (log, lock))
        local_supervisor.do_meanwhile()
        answer = _answer(channel)
        os.waitpid(supervisor.pid, 0)  # it forks the lasting ones and exits
    except BaseException:
        channel.shutdown(socket.SHUT_WR)  # the supervisor, if any, ends the job
        _wait_closed(channel)
        channel.close()
        raise
    finally:
        os.close(log)
    if answer != "started":
        channel.close()
        raise JobStartError(_start_failure(answer, job_dir))
    if spec["attached"]:
        return Lifeline(channel)
    channel.close()
    return None


def _send(channel: socket.socket, data: bytes, fds: tuple[int, int]) -> None:
    """Sends the size with the file descriptors, then the data."""
    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    try:
        channel.sendmsg(
            [len(data).to_bytes(8, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        )
        channel.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended early; its answer or its log says why


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


def _wait_closed(channel: socket.socket) -> None:
    channel.settimeout(CANCEL_ANSWER_S)
    try:
        while channel.recv(65536):
            pass
    except OSError:
        return


def _start_failure(answer: str, job_dir: str) -> str:
    if answer.startswith("failed "):
        return answer.removeprefix("failed ")
    try:
        with open(os.path.join(job_dir, "supervisor.log"), errors="replace") as f:
            last = f.read().strip().split("\n")[-1]
    except OSError:
        last = ""
    return f"the process that supervises the job ended early: {last or 'it left no message'}"


class Watch:
    """Wakes its caller when something happens to a job.

    Args:
        logs: whether new log lines count, or state changes alone.
    """

    def __init__(self, job_dir: str, logs: bool) -> None:
        self._socket: socket.socket | None = connect(job_dir)
        if self._socket is None:
            return
        try:
            self._socket.sendall(b"logs\n" if logs else b"state\n")
            if self._socket.recv(1):  # from here on nothing is missed
                return
        except OSError:
            pass
        self.close()

    @property
    def live(self) -> bool:
        """Whether the supervisor may still have something to say."""
        return self._socket is not None

    def wait(self, timeout_s: float | None) -> None:
        """Returns when something happened, when the supervisor is gone, or after the time."""
        if self._socket is None:
            return
        self._socket.settimeout(timeout_s if timeout_s is None else max(timeout_s, 0.001))
        try:
            if not self._socket.recv(65536):
                self.close()
        except TimeoutError:
            pass
        except OSError:
            self.close()

    def close(self) -> None:
        """Stops watching."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def connect(job_dir: str) -> "socket.socket | None":
    """A connection to the supervisor of a job; ``None`` if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CANCEL_ANSWER_S)
    path = os.path.join(job_dir, "sock")
    folder = -1
    try:
        if (
            len(os.fsencode(path)) > 100 and sys.platform == "linux"
        ):  # longer than a socket's name may be
            folder = os.open(job_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{folder}/sock"
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    finally:
        if folder >= 0:
            os.close(folder)
    return connection


def request_cancel(store: Store, record: JobRecord) -> None:
    """Asks the supervisor to end the job and returns once it has begun to.

    Raises:
        BackendUnavailable: if the job runs on another machine.
    """
    connection = connect(record.path)
    if connection is not None:
        try:
            connection.sendall(b"cancel\n")
            if connection.recv(1):
                return
        except OSError:
            pass  # it ended, or it is stuck
        finally:
            connection.close()
    if _elsewhere(record):
        msg = f"the job `{record.text('app_id')}` runs on `{record.text('host')}`, cancel it there"
        raise BackendUnavailable(msg)
    lock = store.try_lock(record.text("app_id"))
    if lock is not None:
        os.close(lock)
        settle(store, record)
        return
    view = record.view()
    if not view.terminal:  # stuck: its guard cleans up after it
        for pid, ticks in view.supervisors[:1]:
            found = tree.process(pid)
            if found is not None and found.ticks == ticks:
                tree.send(found, 9)


def end(store: Store, record: JobRecord) -> None:
    """Ends a job and returns when nothing of it is left."""
    request_cancel(store, record)
    app_id = record.text("app_id")
    deadline = time.monotonic() + float(record.text("grace_s")) + END_EXTRA_S
    watch = Watch(record.path, logs=False)
    while watch.live and (left := deadline - time.monotonic()) > 0:
        watch.wait(left)
    watch.close()
    while time.monotonic() < deadline:
        lock = store.try_lock(app_id)
        if lock is not None:
            os.close(lock)
            break
        if not os.path.exists(os.path.join(record.path, "lock")):
            return
        time.sleep(0.002)
    else:
        for pid, ticks in record.view().supervisors:
            found = tree.process(pid)
            if found is not None and found.ticks == ticks:
                tree.send(found, 9)
    settle(store, record)


def settle(store: Store, record: JobRecord) -> bool:
    """Completes the record of a job that has lost its supervisor, and ends what is left of it.

    Returns:
        Whether there was something to complete.
    """
    if _elsewhere(record):
        return False
    lock = store.try_lock(record.text("app_id"))
    if lock is None:
        return False
    try:
        view = record.view()
        if view.terminal:
            # the supervisor was killed between its last two steps
            store.finish(record, view.state.name, view.ended_ns)
            return False
        cookie = f"{ENV_TORCHX_LOCAL_JOB}={record.text('app_id')}".encode()
        deadline = time.monotonic() + CANCEL_ANSWER_S
        while (left := tree.carrying(cookie)) and time.monotonic() < deadline:
            for target in left:
                if target.pid != os.getpid():
                    tree.send(target, 9)
            if [p.pid for p in left] == [os.getpid()]:
                break
            time.sleep(0.01)
        same_boot = not view.boot_id or view.boot_id == tree.boot_id()
        journal.complete(
            {
                "job_dir": record.path,
                "home": store.home,
                "app_id": record.text("app_id"),
                "session": record.text("session"),
                "name": record.text("name"),
                "created_ns": record.data["created_ns"],
            },
            "the processes that supervised this job were killed; its replicas were ended"
            if same_boot
            else "the machine was restarted while this job ran",
        )
        return True
    finally:
        os.close(lock)


def _elsewhere(record: JobRecord) -> bool:
    return record.text("host") != host()


def host() -> str:
    """Name of this machine."""
    return os.uname().nodename


def cuda_device_count() -> int:
    """GPUs that ``nvidia-smi`` lists; 0 without it."""
    import subprocess

    try:
        result = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    if result.returncode != 0:
        return 0
    return sum(1 for line in result.stdout.splitlines() if line.strip())
