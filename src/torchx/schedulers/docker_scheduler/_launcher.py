"""The process that launches an app: others must know whether it may still start containers."""

import os

START_S = 1800
"""Seconds after its creation during which a container may be started."""


def identity() -> str:
    """Identifies this process among all on this machine since boot, within one container.

    Empty if the system does not provide it.
    """
    return _identity(os.getpid())


def may_start(launcher: str, created_s: int, now_s: float) -> bool:
    """Returns True if a container that was only created may still be started.

    Args:
        launcher: label of the container.
        created_s: when it was created, in seconds since the epoch.
    """
    if now_s - created_s > START_S:
        return False
    boot, namespace, pid, _ = [*launcher.split(":"), "", "", "", ""][:4]
    if f"{boot}:{namespace}" != _machine() or not pid.isdigit():
        return True  # a launcher on another machine
    return _identity(int(pid)) == launcher


def _machine() -> str:
    """Returns the boot id of this machine, and the namespace of process ids."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _identity(pid: int) -> str:
    """Identifies a process by id and start time; empty if it has ended or is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the command's name is in parentheses and may have any character
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    machine = _machine()
    if not machine or fields[0] in (b"Z", b"X"):
        return ""
    return f"{machine}:{pid}:{int(fields[19])}"
