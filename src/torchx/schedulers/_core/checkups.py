"""Checks for ``torchx doctor``: what a scheduler needs, and whether it is available."""

import errno
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from torchx._startup.dataclass import field, light_dataclass
from torchx.errors import BackendUnavailable, CommandFailed, ProgramNotFound
from torchx.specs.api import CfgVal

from .command import BackendPrograms

PROGRAM_S = 6.0
"""Seconds for one program, so that a whole checkup ends within ten."""
_LEAST_FREE = 1 << 30
_FEW_FILES = 4096
_MOUNT_FIELDS = 3
_OF_ONE_MACHINE = ("btrfs", "ext2", "ext3", "ext4", "overlay", "tmpfs", "xfs", "zfs")
"""File systems on disks of a machine. Others may be a network's."""


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
class Configured:
    """The user's configuration that checks may read."""

    cfg: Mapping[str, CfgVal] = field(default_factory=dict)
    """Options of the scheduler that config files give; without defaults."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Images of jobs, and where each is named; empty for the default one."""

    def text(self, option: str) -> str | None:
        """Returns the value of a text option; ``None`` if it is not given."""
        value = self.cfg.get(option)
        return str(value) if value else None


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
    there = os.path.abspath(path)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    try:
        _try_to_write(there)
    except OSError as err:
        mend = f"chown -R $(id -u) {shlex.quote(there)}"
        fix = mend if err.errno in (errno.EACCES, errno.EPERM) else "Choose another folder"
        return broken(f"{what} `{path}`: it cannot be written: {err.strerror}", fix)
    free = shutil.disk_usage(there).free
    text = f"{what} `{path}`, {free / (1 << 30):.1f} GB free"
    if free < _LEAST_FREE:
        return warning(text, "Free some space")
    return ok(text)


def _try_to_write(folder: str) -> None:
    """Writes an unnamed file: permissions alone do not reveal quotas and unusual file systems."""
    import tempfile

    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"x")
        file.flush()


def open_files_finding(why: str) -> Finding:
    """Checks the limit on open files.

    Args:
        why: what a low limit is too low for.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files at once (ulimit -n)"
    if soft == resource.RLIM_INFINITY or soft >= _FEW_FILES:
        return ok(text)
    wanted = _FEW_FILES if hard == resource.RLIM_INFINITY else min(_FEW_FILES, hard)
    return warning(f"{text}: few for {why}", f"ulimit -n {wanted}")


def file_system(path: str, mounts: str) -> str:
    """Returns the file system type of a path, from the text of ``/proc/self/mounts``.

    >>> file_system("/home/me/jobs", "dev / ext4 rw 0 0\\nnas:/h /home nfs4 rw 0 0")
    'nfs4'
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < _MOUNT_FIELDS:
            continue
        place = fields[1].encode().decode("unicode_escape")  # a space in it is \\040
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, fields[2]
    return kind


def shared_folder_finding(path: str, option: str, mounts: str = "/proc/self/mounts") -> Finding:
    """Like ``folder_finding``, for a folder that the nodes of a cluster must see as well.

    Args:
        option: the option that sets another folder.
        mounts: the system's table of mounted file systems.
    """
    found = folder_finding(path, "jobs and logs in")
    if found.verdict is not Verdict.OK:
        return found
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            kind = file_system(os.path.realpath(path), file.read())
    except OSError:  # no Linux
        return found
    if kind in _OF_ONE_MACHINE:
        text = f"{found.text}: on {kind}, which other machines see only if it is exported to them"
        return warning(text, f"{option} = a folder that all nodes see, in .torchxconfig")
    return ok(f"{found.text}, on {kind}" if kind else found.text)
