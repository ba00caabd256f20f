"""The process tree from the kernel, and signals that cannot hit unrelated processes."""

import os

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    import signal as signal
else:
    try:  # the public module costs 3 ms of enum conversions for each job
        import _signal as signal
    except ImportError:  # pragma: no cover - an interpreter other than CPython
        import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
DETACHED = b"torchx-detached"
"""Name of the processes that supervise a detached job; at most 15 bytes."""
_DEAD = (b"Z", b"X")


class Process:
    """A line of ``/proc/<pid>/stat``; ``ticks`` is the start time, which makes it unique."""

    __slots__ = ("name", "pgrp", "pid", "ppid", "session", "state", "ticks")

    def __init__(self, pid: int, name: bytes, fields: "list[bytes]") -> None:
        self.pid = pid
        self.name = name
        self.state = fields[0]
        self.ppid = int(fields[1])
        self.pgrp = int(fields[2])
        self.session = int(fields[3])
        self.ticks = int(fields[19])


def process(pid: int) -> "Process | None":
    """Returns the process with that id; ``None`` if there is none (or no ``/proc``)."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as f:
            data = f.read()
    except OSError:
        return None
    # the command's name is in parentheses and may have any character
    end = data.rfind(b")")
    return Process(pid, data[data.find(b"(") + 1 : end], data[end + 2 :].split())


def start_ticks(pid: int) -> int:
    """Returns when the process started, in clock ticks since boot; 0 if unknown."""
    found = process(pid)
    return found.ticks if found else 0


def below(root: int) -> "tuple[list[Process], bool]":
    """Returns all live processes below ``root``, and whether some are left out.

    Jobs launched from there with ``detach`` are left out, because they must stay.
    """
    try:
        names = os.listdir("/proc")
    except OSError:
        return [], False
    children: dict[int, list[Process]] = {}
    for name in names:
        if name.isdigit():
            found = process(int(name))
            if found is not None:
                children.setdefault(found.ppid, []).append(found)
    living: list[Process] = []
    detached = False
    queue = [root]
    while queue:
        for child in children.get(queue.pop(), []):
            if child.name == DETACHED:
                detached = True
                continue
            queue.append(child.pid)
            if child.state not in _DEAD:
                living.append(child)
    return living, detached


def mark_detached() -> None:
    """Marks this process and its descendants so that other jobs do not end them."""
    try:
        with open("/proc/self/comm", "wb", 0) as f:
            f.write(DETACHED)
    except OSError:
        pass


def carrying(entry: bytes) -> "list[Process]":
    """Returns this user's processes whose environment has the entry ``NAME=value``."""
    found = []
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            with open(f"/proc/{name}/environ", "rb", 0) as f:
                if entry not in f.read().split(b"\0"):
                    continue
        except OSError:
            continue
        one = process(int(name))
        if one is not None and one.state not in _DEAD and one.name != DETACHED:
            found.append(one)
    return found


def send(target: "Process", signum: int) -> bool:
    """Signals exactly this process, never a later one with the same id."""
    try:
        fd = os.pidfd_open(target.pid)
    except AttributeError:  # not Linux
        return _send_by_pid(target, signum)
    except OSError as err:
        if err.errno in (38, 22, 24):  # ENOSYS: before Linux 5.3; EINVAL; EMFILE
            return _send_by_pid(target, signum)
        return False
    try:
        if start_ticks(target.pid) != target.ticks:
            return False
        signal.pidfd_send_signal(fd, signum)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _send_by_pid(target: "Process", signum: int) -> bool:
    if start_ticks(target.pid) != target.ticks:
        return False
    try:
        os.kill(target.pid, signum)
    except OSError:
        return False
    return True


def prctl(option: int, value: int) -> bool:
    """Calls Linux's ``prctl``; ``False`` where it is missing or refuses."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def boot_id() -> str:
    """Returns the boot id of this machine; empty if the kernel does not provide it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip()
    except OSError:
        return ""


def find_executable(name: str, path: str, cwd: str) -> str | None:
    """Returns the file that ``execvp`` would find for ``name`` from ``cwd``."""
    if "/" in name:
        full = os.path.join(cwd, name)
        return full if os.access(full, os.X_OK) and not os.path.isdir(full) else None
    for folder in path.split(os.pathsep):
        full = os.path.join(cwd, folder or ".", name)
        if os.access(full, os.X_OK) and not os.path.isdir(full):
            return full
    return None
