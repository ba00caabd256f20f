"""Checks for ``torchx doctor``: what a scheduler needs, and whether it is available."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from torchx._startup.dataclass import field, light_dataclass
from torchx.errors import BackendUnavailable, CommandFailed, ProgramNotFound

from .command import BackendPrograms

PROGRAM_S = 6.0
"""Seconds for one program, so that a whole checkup ends within ten."""
_LEAST_FREE = 1 << 30


class Verdict(str, Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"
    NEUTRAL = "neutral"
    """Not set up, and perhaps not wanted."""


@light_dataclass(frozen=True)
class Finding:
    """The result of one check.

    ``options`` are suggested values for ``.torchxconfig``.
    """

    verdict: Verdict
    text: str
    fix: str = ""
    """The fix: a command if there is one."""
    options: Mapping[str, str] = field(default_factory=dict)


@light_dataclass(frozen=True)
class Checkup:
    """A check; it may take seconds, and may raise a ``TorchXError``."""

    name: str
    check: Callable[[], Finding]


def ok(text: str, **options: str) -> Finding:
    """Returns a finding: no problem."""
    return Finding(Verdict.OK, text, options=options)


def broken(text: str, fix: str) -> Finding:
    """Returns a finding: no job can run until this is fixed."""
    return Finding(Verdict.BROKEN, text, fix)


def warning(text: str, fix: str = "") -> Finding:
    """Returns a finding: something may go wrong."""
    return Finding(Verdict.WARNING, text, fix)


def neutral(text: str, fix: str = "") -> Finding:
    """Returns a finding: not set up."""
    return Finding(Verdict.NEUTRAL, text, fix)


# -- programs ------------------------------------------------------------------------------------


def missing_programs(names: Sequence[str]) -> list[str]:
    """Returns the programs that are not on PATH."""
    return [name for name in names if shutil.which(name) is None]


def programs_finding(names: Sequence[str], optional: Sequence[str], where: str) -> Finding:
    """Checks that the programs of a backend are on PATH; neutral if none of them is."""
    missing = missing_programs(names)
    if len(missing) == len(names):
        return neutral(f"not set up: `{names[0]}` is not on PATH", where)
    if missing:
        return broken(f"not on PATH: {', '.join(missing)}", where)
    lacking = missing_programs(optional)
    if lacking:
        return warning(f"not on PATH: {', '.join(lacking)}", where)
    return ok(f"`{names[0]}` is {shutil.which(names[0])}")


def answer_finding(
    programs: BackendPrograms, argv: Sequence[str], read: Callable[[str], Finding], fix: str
) -> Finding:
    """Runs a program and interprets its output; broken if it fails."""
    try:
        return read(programs.ask(argv, timeout_s=PROGRAM_S, pauses_s=()))
    except ProgramNotFound as err:
        return warning(str(err))
    except (BackendUnavailable, CommandFailed) as err:
        return broken(str(err), fix)


# -- files ---------------------------------------------------------------------------------------


def folder_finding(path: str, what: str) -> Finding:
    """Checks that a folder is writable and has free space."""
    there = path
    while not os.path.isdir(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    if not os.access(there, os.W_OK | os.X_OK):
        return broken(f"{what} `{path}` cannot be written", f"chown -R $(id -u) {there}")
    free = shutil.disk_usage(there).free
    text = f"{what} `{path}`, {free / (1 << 30):.1f} GB free"
    if free < _LEAST_FREE:
        return warning(text, "Free some space")
    return ok(text)
