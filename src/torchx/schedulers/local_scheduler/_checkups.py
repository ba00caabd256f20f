"""Checks for local jobs: folder for records, file descriptors, processes, shared memory."""

import os
import resource
import shutil

from torchx.schedulers._core.checkups import (
    Checkup,
    Finding,
    folder_finding,
    neutral,
    ok,
    open_files_finding,
    warning,
)

from ._client import cuda_device_count
from ._folders import local_home

_FEW_PROCESSES = 1024
_SMALL_SHM = 1 << 30
_SHM = "/dev/shm"


def checkups() -> list[Checkup]:
    """Returns all checks."""
    return [
        Checkup("records", lambda: folder_finding(local_home(), "records and logs in")),
        Checkup("open files", lambda: open_files_finding("jobs of many replicas")),
        Checkup("processes", _processes),
        Checkup("shared memory", _shared_memory),
        Checkup("GPUs", _gpus),
    ]


def _processes() -> Finding:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft == resource.RLIM_INFINITY:
        return ok("any number of processes (ulimit -u)")
    text = f"{soft} processes of this user (ulimit -u)"
    return ok(text) if soft >= _FEW_PROCESSES else warning(text, "ulimit -u unlimited")


def _shared_memory() -> Finding:
    if not os.path.isdir(_SHM):
        return neutral("this system has no /dev/shm")
    total = shutil.disk_usage(_SHM).total
    text = f"{total / (1 << 30):.1f} GB in {_SHM}"
    if total < _SMALL_SHM:
        return warning(f"{text}: little for DataLoader workers", f"mount -o remount,size=8G {_SHM}")
    return ok(text)


def _gpus() -> Finding:
    count = cuda_device_count()
    return ok(f"{count} GPUs") if count else neutral("none found")
