"""Checks for LSF: its programs, a cluster that answers, an open queue, a shared folder."""

import os

from torchx.schedulers._core.checkups import (
    Checkup,
    Configured,
    Finding,
    answer_finding,
    broken,
    ok,
    programs_finding,
    shared_folder_finding,
)

from ._client import PROGRAMS

_PROFILE = "Source the profile of LSF, or run this on a host of the cluster"


def checkups(configured: Configured | None = None) -> list[Checkup]:
    """Returns all checks; only one if LSF is not set up."""
    given = configured or Configured()
    found = programs_finding(("bsub", "bjobs", "bkill"), ("bhist", "bqueues", "lsid"), _PROFILE)
    first = Checkup("programs", lambda: found)
    if found.verdict.value not in ("ok", "warning"):
        return [first]
    queue = given.text("queue") or given.text("lsf_queue")
    folder = given.text("jobdir") or os.getcwd()
    return [
        first,
        Checkup("cluster", _cluster),
        Checkup("queues", lambda: _queues(queue)),
        Checkup("folder", lambda: shared_folder_finding(folder, "jobdir")),
    ]


def _cluster() -> Finding:
    def read(text: str) -> Finding:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines:
            return broken("`lsid` says nothing", _PROFILE)
        return ok(", ".join([lines[0], *(line for line in lines[1:] if "cluster name" in line)]))

    return answer_finding(PROGRAMS, ["lsid"], read, _PROFILE)


def _queues(wanted: str | None) -> Finding:
    def read(text: str) -> Finding:
        rows = [line.split() for line in text.splitlines()[1:] if line.strip()]
        opened = [row[0] for row in rows if len(row) > 2 and row[2] == "Open:Active"]
        if not opened:
            return broken("no queue takes and starts jobs", "bqueues")
        if wanted is None:
            return ok(f"open: {', '.join(opened)}", queue=opened[0])
        if wanted not in opened:
            text = f"`{wanted}` is none of the open queues: {', '.join(opened)}"
            return broken(text, f"queue = {opened[0]}")
        return ok(f"open: {', '.join(opened)} (configured: {wanted})")

    return answer_finding(PROGRAMS, ["bqueues", "-w"], read, "bqueues")
