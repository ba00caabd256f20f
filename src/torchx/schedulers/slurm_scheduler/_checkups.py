"""Checks for Slurm: its programs, the controller, a partition, a shared folder."""

import os
import pwd
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from torchx.errors import BackendUnavailable, CommandFailed
from torchx.schedulers._core.checkups import (
    PROGRAM_S,
    Checkup,
    Configured,
    Finding,
    answer_finding,
    broken,
    missing_programs,
    neutral,
    ok,
    open_files_finding,
    programs_finding,
    shared_folder_finding,
    warning,
)
from torchx.schedulers._core.clocks import Limit, clock_finding

from ._client import PROGRAMS
from ._parse import parse_version
from ._submit import UNCONFIGURED

_NEEDED = ("sbatch", "squeue", "scancel", "srun")
_HELPFUL = ("sacct", "sinfo", "scontrol")
_LOGIN = "Run this on a login node of the cluster"
_PASSED_ON = "jobs of many replicas, and sbatch passes it on to them"
"""https://slurm.schedmd.com/sbatch.html#OPT_propagate"""
_MUNGE = Limit(300, "Slurm's messages, which MUNGE signs for 5 min, are refused")
"""`MUNGE_DEFAULT_TTL` of https://github.com/dun/munge/blob/master/src/libcommon/munge_defs.h"""


def checkups(configured: Configured | None = None) -> list[Checkup]:
    """Returns all checks; only one if Slurm is not set up."""
    given = configured or Configured()
    found = programs_finding(_NEEDED, _HELPFUL, _LOGIN)
    first = Checkup("programs", lambda: found)
    if found.verdict.value not in ("ok", "warning"):
        return [first]
    absent = _unconfigured()
    if absent is not None:
        return [Checkup("programs", lambda: absent)]
    folder = given.text("job_dir") or os.getcwd()
    return [
        first,
        Checkup("version", _version),
        Checkup("controller", _controller),
        Checkup("clock", _clock),
        Checkup("partitions", lambda: _partitions(given.text("partition"))),
        Checkup("account", lambda: _account(given.text("account"))),
        Checkup("accounting", _accounting),
        Checkup("folder", lambda: shared_folder_finding(folder, "job_dir")),
        Checkup("open files", lambda: open_files_finding(_PASSED_ON)),
    ]


def _unconfigured() -> Finding | None:
    """That the programs are there and no cluster is; ``None`` if they find one."""
    try:
        PROGRAMS.ask(["sbatch", "--version"], timeout_s=PROGRAM_S, pauses_s=())
    except CommandFailed as err:
        if re.search(UNCONFIGURED, err.stderr):
            text = "not set up: Slurm's programs are here, and find no configuration of a cluster"
            return neutral(text, f"{_LOGIN}, or set SLURM_CONF")
    except BackendUnavailable:
        pass  # other checks tell
    return None


def _told(argv: Sequence[str], read: Callable[[str], Finding], without: str) -> Finding:
    """Interprets the output of an optional program, or of one that other checks also miss."""
    try:
        text = PROGRAMS.ask(argv, timeout_s=PROGRAM_S, pauses_s=())
    except (BackendUnavailable, CommandFailed):
        return neutral(without)
    return read(text)


def _version() -> Finding:
    def read(text: str) -> Finding:
        found = parse_version(text)
        if found is None:
            return warning(f"`sbatch --version` says {' '.join(text.split())[:80]!r}")
        return ok(f"Slurm {found[0]}.{found[1]:02d}")

    return _told(["sbatch", "--version"], read, "`sbatch` does not tell it")


def _controller() -> Finding:
    def read(text: str) -> Finding:
        words = " ".join(text.split())
        if "UP" in words:
            return ok(words)
        return broken(words, "Ask the administrators of the cluster")

    return answer_finding(PROGRAMS, ["scontrol", "ping"], read, _LOGIN)


def _clock() -> Finding:
    def read(text: str) -> Finding:
        return clock_finding(_config_time_s(text), time.time(), "the controller", _MUNGE)

    return _told(["scontrol", "show", "config"], read, "the controller does not answer")


def _config_time_s(text: str) -> float | None:
    """Parses the time of the controller's configuration, in our time zone."""
    found = re.match(r"Configuration data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", text)
    return datetime.fromisoformat(found[1]).timestamp() if found else None


def _partitions(wanted: str | None) -> Finding:
    def read(text: str) -> Finding:
        rows = [line.split() for line in text.splitlines() if line.strip()]
        up = [row[0] for row in rows if len(row) > 1 and row[1] == "up"]
        if not up:
            return broken("no partition is up", "sinfo")
        default = [name.rstrip("*") for name in up if name.endswith("*")]
        known = [*dict.fromkeys(name.rstrip("*") for name in up)]
        names = ", ".join(known)
        if wanted is not None:
            missing = [name for name in wanted.split(",") if name not in known]
            if missing:
                return broken(f"`{missing[0]}` is none of those that are up: {names}", "sinfo")
            return ok(f"{names} (configured: {wanted})")
        if default:
            return ok(f"{names} (default {default[0]})", partition=default[0])
        found = warning(f"{names}; none is the default", "-cfg partition=NAME")
        return Finding(found.verdict, found.text, found.fix, {"partition": up[0]})

    return answer_finding(PROGRAMS, ["sinfo", "-h", "-o", "%P %a"], read, "sinfo")


def _account(wanted: str | None) -> Finding:
    """Checks the user's accounts; whether one is required, no program reports."""
    if missing_programs(["sacctmgr"]):
        return neutral("`sacctmgr`, which tells accounts, is not on PATH")

    def read(text: str) -> Finding:
        names = [*dict.fromkeys(line.strip() for line in text.splitlines() if line.strip())]
        if not names:
            return neutral("this user has no account of Slurm, where none may be needed")
        found = f"this user may use {', '.join(names)}"
        if wanted is not None and wanted not in names:
            return broken(f"`{wanted}` is not an account of this user, who has: {', '.join(names)}",
                          f"account = {names[0]}")  # fmt: skip
        return ok(found)

    user = pwd.getpwuid(os.getuid()).pw_name
    argv = ["sacctmgr", "-nP", "show", "associations", f"user={user}", "format=account"]
    return _told(argv, read, "`sacctmgr` does not tell them")


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
