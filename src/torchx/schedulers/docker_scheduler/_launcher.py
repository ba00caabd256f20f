"""The process that launches an app: others must know whether it still may start containers."""

import os

START_S = 1800
"""How long after its creation a container may be started, whoever launches it."""


def identity() -> str:
    """Names this process among all of this machine since it was switched on, containers apart.

    Empty where the system does not tell.
    """
    return _identity(os.getpid())


def may_start(launcher: str, created_s: int, now_s: float) -> bool:
    """Whether a container that was only created may still be started.

    Args:
        launcher: label of the container.
        created_s: when it was created, in seconds since the epoch.
    """
    if now_s - created_s > START_S:
        return False
    boot, namespace, pid, _ = [*launcher.split(":"), "", "", "", ""][:4]
    if f"{boot}:{namespace}" != _machine() or not pid.isdigit():
        return True  # a launcher elsewhere
    return _identity(int(pid)) == launcher


def _machine() -> str:
    """This boot of this machine, and the namespace in which process ids are counted."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _identity(pid: int) -> str:
    """A process with the time of its start; empty if it has ended, or cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the command's name stands in parentheses and may hold any character
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    machine = _machine()
    if not machine or fields[0] in (b"Z", b"X"):
        return ""
    return f"{machine}:{pid}:{int(fields[19])}"
