"""Launches real jobs on ``local_cwd`` and looks at the processes that they leave."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchx.schedulers.api import DescribeAppResponse
from torchx.schedulers.local_scheduler import LocalScheduler
from torchx.specs.api import AppDef, Role, is_terminal


def make_app(*command: str, name: str = "job", replicas: int = 1, **role: Any) -> AppDef:
    """An app of one role ``w`` that runs the command."""
    program, *args = command
    return AppDef(
        name, [Role("w", "", entrypoint=program, args=args, num_replicas=replicas, **role)]
    )


def sh(script: str, **kwargs: Any) -> AppDef:
    """An app that runs a shell script."""
    return make_app("sh", "-c", script, **kwargs)


def wait_until(condition: Callable[[], Any], timeout_s: float = 20) -> Any:
    """Waits for a condition; returns its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"did not happen within {timeout_s} s"
        time.sleep(0.01)
    return value


def wait_for_end(
    scheduler: LocalScheduler, app_id: str, timeout_s: float = 30
) -> DescribeAppResponse:
    """Waits until the job is terminal; returns its description."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = scheduler.describe(app_id)
        assert found is not None
        if is_terminal(found.state):
            return found
        assert time.monotonic() < deadline, f"{app_id} is still {found.state}"
        scheduler.wait_for_change(app_id, deadline - time.monotonic())


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def processes_with(marker: str) -> list[int]:
    """Living processes whose command line holds the marker, but for this one."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words and alive(int(entry)):
            found.append(int(entry))
    return found


LAUNCHER = """
import sys, time
from torchx.runner import get_runner
from torchx.specs import AppDef, Role, Resource
script, detach = sys.argv[1], sys.argv[2] == "detach"
app = AppDef("job", [Role("w", "", entrypoint="sh", args=["-c", script], num_replicas=2,
                          resource=Resource(1, 0, 1))])
with get_runner() as runner:
    handle = runner.run(app, "local_cwd", {"detach": detach, "grace_s": 1})
    print(handle, flush=True)
    if not detach:
        runner.wait(handle)
"""
