"""What asks and orders the processes that supervise jobs, and ends what they left behind."""

import _socket as socket  # the public module takes 3 ms to import
import os
import sys
import threading
import time

from torchx.errors import BackendUnavailable
from torchx.settings import ENV_TORCHX_LOCAL_JOB

from ._record import JobRecord
from ._states import JobView
from ._store import Store
from ._supervise import journal, tree
from ._supervise.format import event

CANCEL_ANSWER_S = 5.0
"""How long a supervisor may take to answer before it counts as stuck."""
WATCH_ANSWER_S = 1.0
"""How long to wait for a supervisor that is to tell of changes; then the files are looked at."""
SHORTEST_WAIT_S = 0.01
POLL_S = 0.2
"""How often a job is looked at whose supervisor does not answer."""
END_NOTICE_S = 0.2
"""How long a cancel lets a job end, so that a look right after it finds what ended at once."""
END_EXTRA_S = 15.0
"""How long the end of a job may take beyond its grace period before its supervisor is killed."""


class Watch:
    """Wakes its caller when something happens to a job.

    Args:
        logs: whether new log lines count, or state changes alone.
    """

    def __init__(self, job_dir: str, logs: bool) -> None:
        self._answered = False
        self._socket: socket.socket | None = connect(job_dir)
        if self._socket is None:
            return
        try:
            self._socket.sendall(b"logs\n" if logs else b"state\n")
        except OSError:
            self.close()
            return
        self._receive(WATCH_ANSWER_S)

    @property
    def live(self) -> bool:
        """Whether a supervisor may still have something to say."""
        return self._socket is not None

    @property
    def told_of_all(self) -> bool:
        """Whether nothing can be missed from here on."""
        return self._socket is not None and self._answered

    def wait(self, timeout_s: float | None) -> None:
        """Returns when something happened, when the supervisor is gone, or after the time.

        One that does not answer (it was stopped, or has no room for more who follow) is waited
        for shortly only.
        """
        if not self._answered:
            timeout_s = POLL_S if timeout_s is None else min(timeout_s, POLL_S)
        self._receive(timeout_s)

    def _receive(self, timeout_s: float | None) -> None:
        if self._socket is None:
            return
        self._socket.settimeout(timeout_s if timeout_s is None else max(timeout_s, 0.001))
        try:
            if self._socket.recv(65536):
                self._answered = True
            else:
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


class Follower:
    """Wakes a reader of logs when there is more, until the job has ended."""

    def __init__(self, store: Store, app_id: str) -> None:
        self._store = store
        self._app_id = app_id
        self._watch = Watch(store.job_dir(app_id), logs=True)

    @property
    def live(self) -> bool:
        """Whether more may be written."""
        if self._watch.told_of_all:
            return True
        record = self._store.read(self._app_id)
        return record is not None and not settled_view(self._store, record).terminal

    def wait(self, timeout_s: float | None) -> None:
        """Returns when there may be more, at the latest after the time."""
        if self._watch.live:
            self._watch.wait(timeout_s)
        else:
            time.sleep(POLL_S if timeout_s is None else min(timeout_s, POLL_S))

    def close(self) -> None:
        """Stops waiting."""
        self._watch.close()


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


# -- looking -------------------------------------------------------------------------------------

_looks = threading.local()
"""Of each thread: how long the journals were that it has looked at, by their folder."""


def settled_view(store: Store, record: JobRecord) -> JobView:
    """The state of a job, after completing the record of one whose supervisor was killed."""
    view = store.view(record)
    if not view.terminal and not record.damage and settle(store, record):
        view = store.view(record)
    sizes: dict[str, int] = _looks.__dict__.setdefault("sizes", {})
    if view.terminal:
        sizes.pop(record.path, None)
    else:
        sizes[record.path] = view.size
    return view


def wait_for_change(store: Store, app_id: str, timeout_s: float) -> None:
    """Returns when something has happened to a job since this thread looked at it last.

    At the latest it returns after the time, and at once if the job has ended or is unknown. While
    the job runs, it does not return more than ``1 / SHORTEST_WAIT_S`` times a second.
    """
    record = store.read(app_id)
    if record is None:
        return
    started = time.monotonic()
    seen = _looks.__dict__.get("sizes", {}).get(record.path)
    watch = Watch(record.path, logs=False)
    try:
        view = store.view(record)
        if not view.terminal and seen in (None, view.size):
            if watch.live:
                watch.wait(timeout_s)
            else:
                time.sleep(min(timeout_s, POLL_S))
    finally:
        watch.close()
    left_s = min(SHORTEST_WAIT_S, timeout_s) - (time.monotonic() - started)
    if left_s > 0 and not store.view(record).terminal:
        time.sleep(left_s)  # so that a job of which much happens is not looked at all the time


# -- ending --------------------------------------------------------------------------------------


def request_cancel(store: Store, record: JobRecord) -> None:
    """Asks the supervisor to end the job and returns once it has begun to.

    Raises:
        BackendUnavailable: if the job runs on another machine.
    """
    if ask_to_end(record.path):
        return
    if _elsewhere(record):
        msg = f"the job `{record.app_id}` runs on `{record.host}`, cancel it there"
        raise BackendUnavailable(msg)
    lock = store.try_lock(record.app_id)
    if lock is not None:
        os.close(lock)
        settle(store, record)
        return
    view = store.view(record)
    if not view.terminal:  # stuck: its guard cleans up after it, and finds that it was cancelled
        line = event("ending", time.time_ns(), "CANCELLED", "")
        journal.append_line(os.path.join(record.path, "journal"), f"\n{line}")
        kill_supervisors(view.supervisors[:1])


def ask_to_end(job_dir: str) -> bool:
    """Whether the supervisor of the job has said that it ends it."""
    connection = connect(job_dir)
    if connection is None:
        return False
    try:
        connection.sendall(b"cancel\n")
        return bool(connection.recv(1))
    except OSError:
        return False  # it ended, or it is stuck
    finally:
        connection.close()


def end(store: Store, record: JobRecord) -> None:
    """Ends a job and returns when nothing of it is left."""
    request_cancel(store, record)
    if not wait_for_lock(store, record.app_id, record.grace_s + END_EXTRA_S):
        kill_supervisors(store.view(record).supervisors)
    settle(store, record)


def wait_for_lock(store: Store, app_id: str, timeout_s: float) -> bool:
    """Waits until nobody supervises the job; false if somebody does after the time."""
    deadline = time.monotonic() + timeout_s
    folder = store.job_dir(app_id)
    watch = Watch(folder, logs=False)
    while watch.live and (left_s := deadline - time.monotonic()) > 0:
        watch.wait(left_s)
    watch.close()
    while time.monotonic() < deadline:
        lock = store.try_lock(app_id)
        if lock is not None:
            os.close(lock)
            return True
        if not os.path.exists(os.path.join(folder, "lock")):
            return True
        time.sleep(0.002)
    return False


def kill_supervisors(supervisors: "list[tuple[int, int]]") -> None:
    """Kills these processes, each given by its id and the time of its start."""
    for pid, ticks in supervisors:
        found = tree.process(pid)
        if found is not None and found.ticks == ticks:
            tree.send(found, 9)


def settle(store: Store, record: JobRecord) -> bool:
    """Completes the record of a job that has lost its supervisor, and ends what is left of it.

    Returns:
        Whether there was something to complete.
    """
    if _elsewhere(record):
        return False
    lock = store.try_lock(record.app_id)
    if lock is None:
        return False
    try:
        view = store.view(record)
        if view.terminal:
            if record.app_id in store.active():  # it was killed between its last two steps
                store.finish(record, view.state.name, view.ended_ns)
            return True
        _end_leftovers(record.app_id)
        same_boot = not view.boot_id or view.boot_id == tree.boot_id()
        journal.complete(
            {
                "job_dir": record.path,
                "home": store.home,
                "app_id": record.app_id,
                "session": record.session,
                "name": record.name,
                "created_ns": record.created_ns,
            },
            "the processes that supervised this job were killed; what could be found of its "
            "replicas was ended"
            if same_boot
            else "the machine was restarted while this job ran",
        )
        return True
    finally:
        os.close(lock)


def _end_leftovers(app_id: str) -> None:
    """Kills what carries the mark of the job in its environment."""
    cookie = f"{ENV_TORCHX_LOCAL_JOB}={app_id}".encode()
    deadline = time.monotonic() + CANCEL_ANSWER_S
    while (left := tree.carrying(cookie)) and time.monotonic() < deadline:
        for target in left:
            if target.pid != os.getpid():
                tree.send(target, 9)
        if [p.pid for p in left] == [os.getpid()]:
            return
        time.sleep(0.01)


def _elsewhere(record: JobRecord) -> bool:
    """Whether the job was launched on another machine; a name alone may have changed."""
    return record.host != host() and record.boot_id != tree.boot_id() and not record.damage


def wait_for_any_change(store: Store, timeout_s: float) -> None:
    """Returns when a job is new, gone or has noted something; looks ten times a second."""
    deadline = time.monotonic() + timeout_s
    before = _traces(store)
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(_TRACES_S, left_s))
        if _traces(store) != before:
            return


_TRACES_S = 0.1


def _traces(store: Store) -> tuple[object, ...]:
    """What changes with any job: the index, and the journals of those that run."""
    active = sorted(store.active())
    files = [os.path.join(store.home, "index")]
    files += [os.path.join(store.job_dir(app_id), "journal") for app_id in active]
    return (*active, *map(_size, files))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


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
