"""Communicates with the supervisors of jobs, and cleans up after killed ones."""

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
"""Seconds after which a supervisor that does not answer counts as stuck."""
WATCH_ANSWER_S = 1.0
"""Seconds to wait for a supervisor's notification before the files are polled."""
SHORTEST_WAIT_S = 0.01
POLL_S = 0.2
"""Seconds between polls of a job whose supervisor does not answer."""
END_NOTICE_S = 0.2
"""Seconds that a cancel waits for the end, so that a query right after it finds the end.
"""
END_EXTRA_S = 15.0
"""Seconds beyond its grace period after which the supervisor of an ending job is killed."""


class Watch:
    """Wakes its caller when something happens to a job.

    Args:
        logs: whether to wake for new log lines, too, not only for state changes.
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
        """True if a supervisor may still send notifications."""
        return self._socket is not None

    @property
    def told_of_all(self) -> bool:
        """True if no change can be missed from here on."""
        return self._socket is not None and self._answered

    def wait(self, timeout_s: float | None) -> None:
        """Returns after a change, when the supervisor is gone, or after the timeout.

        The wait is short for a supervisor that does not answer (it is stopped, or has too many
        followers).
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
    """Wakes a reader of logs when there are new lines, until the job has ended."""

    def __init__(self, store: Store, app_id: str) -> None:
        self._store = store
        self._app_id = app_id
        self._watch = Watch(store.job_dir(app_id), logs=True)

    @property
    def live(self) -> bool:
        """True if more lines may be written."""
        if self._watch.told_of_all:
            return True
        record = self._store.read(self._app_id)
        return record is not None and not settled_view(self._store, record).terminal

    def wait(self, timeout_s: float | None) -> None:
        """Returns when there may be more lines, at the latest after the timeout."""
        if self._watch.live:
            self._watch.wait(timeout_s)
        else:
            time.sleep(POLL_S if timeout_s is None else min(timeout_s, POLL_S))

    def close(self) -> None:
        """Stops waiting."""
        self._watch.close()


def connect(job_dir: str) -> "socket.socket | None":
    """Connects to the supervisor of a job; ``None`` if there is none."""
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
"""For each thread: the lengths of the journals it has read, by folder."""


def settled_view(store: Store, record: JobRecord) -> JobView:
    """Returns the state of a job; completes its record if its supervisor was killed."""
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
    """Returns when a job has changed since this thread last queried it.

    It returns after the timeout at the latest, and at once if the job has ended or is unknown.
    While the job runs, it returns at most ``1 / SHORTEST_WAIT_S`` times a second.
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
        time.sleep(left_s)  # so that a job with many changes is not polled all the time


# -- ending --------------------------------------------------------------------------------------


def request_cancel(store: Store, record: JobRecord) -> None:
    """Requests the end of the job, and returns once the supervisor has started to end it.

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
    if not view.terminal:  # stuck: its guard cleans up after it, and finds the cancel
        line = event("ending", time.time_ns(), "CANCELLED", "")
        journal.append_line(os.path.join(record.path, "journal"), f"\n{line}")
        kill_supervisors(view.supervisors[:1])


def ask_to_end(job_dir: str) -> bool:
    """Requests the end of the job; returns True if the supervisor has confirmed it."""
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
    """Ends a job and returns when all its processes are gone."""
    request_cancel(store, record)
    if not wait_for_lock(store, record.app_id, record.grace_s + END_EXTRA_S):
        kill_supervisors(store.view(record).supervisors)
    settle(store, record)


def wait_for_lock(store: Store, app_id: str, timeout_s: float) -> bool:
    """Waits until the job has no supervisor; returns False after the timeout."""
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
    """Kills these processes, each given by its id and start time."""
    for pid, ticks in supervisors:
        found = tree.process(pid)
        if found is not None and found.ticks == ticks:
            tree.send(found, 9)


def settle(store: Store, record: JobRecord) -> bool:
    """Completes the record of a job that lost its supervisor, and ends its processes.

    Returns:
        True if there was something to complete.
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
    """Kills the processes with the job's mark in their environment."""
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
    """Returns True if the job was launched on another machine, not just under another host name."""
    return record.host != host() and record.boot_id != tree.boot_id() and not record.damage


def wait_for_any_change(store: Store, timeout_s: float) -> None:
    """Returns when a job was added, removed or changed; polls ten times a second."""
    deadline = time.monotonic() + timeout_s
    before = _traces(store)
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(_TRACES_S, left_s))
        if _traces(store) != before:
            return


_TRACES_S = 0.1


def _traces(store: Store) -> tuple[object, ...]:
    """Returns data that changes with any job: the index, and the journals of running jobs."""
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
    """Returns the name of this machine."""
    return os.uname().nodename


def cuda_device_count() -> int:
    """Returns the number of GPUs that ``nvidia-smi`` lists; 0 without it."""
    import subprocess

    try:
        result = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    if result.returncode != 0:
        return 0
    return sum(1 for line in result.stdout.splitlines() if line.strip())
