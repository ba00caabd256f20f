"""Checks for Slurm: its programs, the controller, a partition, a shared folder."""

import os

from torchx.schedulers._core.checkups import (
    Checkup,
    Finding,
    answer_finding,
    broken,
    folder_finding,
    ok,
    programs_finding,
    warning,
)

from ._client import PROGRAMS

_NEEDED = ("sbatch", "squeue", "scancel", "srun")
_HELPFUL = ("sacct", "sinfo", "scontrol")
_LOGIN = "Run this on a login node of the cluster"


def checkups() -> list[Checkup]:
    """Returns all checks; only one if Slurm is not set up."""
    found = programs_finding(_NEEDED, _HELPFUL, _LOGIN)
    first = Checkup("programs", lambda: found)
    if found.verdict.value not in ("ok", "warning"):
        return [first]
    return [
        first,
        Checkup("controller", _controller),
        Checkup("partitions", _partitions),
        Checkup("accounting", _accounting),
        Checkup("folder", lambda: folder_finding(os.getcwd(), "jobs and logs in")),
    ]


def _controller() -> Finding:
    def read(text: str) -> Finding:
        words = " ".join(text.split())
        if "UP" in words:
            return ok(words)
        return broken(words, "Ask the administrators of the cluster")

    return answer_finding(PROGRAMS, ["scontrol", "ping"], read, _LOGIN)


def _partitions() -> Finding:
    def read(text: str) -> Finding:
        rows = [line.split() for line in text.splitlines() if line.strip()]
        up = [row[0] for row in rows if len(row) > 1 and row[1] == "up"]
        if not up:
            return broken("no partition is up", "sinfo")
        default = [name.rstrip("*") for name in up if name.endswith("*")]
        names = ", ".join(dict.fromkeys(name.rstrip("*") for name in up))
        if default:
            return ok(f"{names} (default {default[0]})", partition=default[0])
        found = warning(f"{names}; none is the default", "-cfg partition=NAME")
        return Finding(found.verdict, found.text, found.fix, {"partition": up[0]})

    return answer_finding(PROGRAMS, ["sinfo", "-h", "-o", "%P %a"], read, "sinfo")


def _accounting() -> Finding:
    found = answer_finding(
        PROGRAMS, ["sacct", "-n", "-X", "-S", "now-1minutes"], lambda _: ok("sacct answers"), ""
    )
    if found.verdict.value == "ok":
        return found
    return warning(
        f"jobs are forgotten minutes after their end: {found.text}",
        "Nothing, if that is wanted: logs and ends are found in the job's folder",
    )
