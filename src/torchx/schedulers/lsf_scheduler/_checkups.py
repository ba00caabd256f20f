"""Checks for LSF: its programs, a cluster that answers, an open queue, a shared folder."""

import os

from torchx.schedulers._core.checkups import (
    Checkup,
    Finding,
    answer_finding,
    broken,
    folder_finding,
    ok,
    programs_finding,
)

from ._client import PROGRAMS

_PROFILE = "Source the profile of LSF, or run this on a host of the cluster"


def checkups() -> list[Checkup]:
    """Returns all checks; only one if LSF is not set up."""
    found = programs_finding(("bsub", "bjobs", "bkill"), ("bhist", "bqueues", "lsid"), _PROFILE)
    first = Checkup("programs", lambda: found)
    if found.verdict.value not in ("ok", "warning"):
        return [first]
    return [
        first,
        Checkup("cluster", _cluster),
        Checkup("queues", _queues),
        Checkup("folder", lambda: folder_finding(os.getcwd(), "jobs and logs in")),
    ]


def _cluster() -> Finding:
    def read(text: str) -> Finding:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ok(", ".join(line for line in lines if "cluster name" in line) or lines[0])

    return answer_finding(PROGRAMS, ["lsid"], read, _PROFILE)


def _queues() -> Finding:
    def read(text: str) -> Finding:
        rows = [line.split() for line in text.splitlines()[1:] if line.strip()]
        opened = [row[0] for row in rows if len(row) > 2 and row[2] == "Open:Active"]
        if not opened:
            return broken("no queue takes and starts jobs", "bqueues")
        return ok(f"open: {', '.join(opened)}", queue=opened[0])

    return answer_finding(PROGRAMS, ["bqueues", "-w"], read, "bqueues")
