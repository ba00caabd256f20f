"""``torchx prune``: removes records of local jobs that have ended, and unused copies."""

import argparse
import os
import sys

from torchx._home import home_dir
from torchx.cli import _arguments, _log_query, _look, _output
from torchx.cli.cmd_base import SubCommand
from torchx.schedulers.local_scheduler._prune import Remains, compact, find, remove
from torchx.schedulers.local_scheduler._store import Store

_DEFAULT_AGE = "7d"

EPILOG = """\
Only what has ended is removed: records and logs of jobs of `local_cwd`, logs without a record, and
cached image layers that were not used for that time. Other schedulers store their jobs themselves:
`torchx delete` removes those.

examples:
  torchx prune --dryrun            what would go, and what that frees
  torchx prune --older-than 30d --yes
  torchx prune --older-than 0s --keep 100"""


class CmdPrune(SubCommand):
    """Frees the disk space of old jobs."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Remove records and logs of local jobs that ended some time ago."
        subparser.epilog = EPILOG
        subparser.add_argument(
            "--older-than",
            type=_log_query.parse_time,
            default=_DEFAULT_AGE,
            metavar="AGE",
            help="only what ended longer ago (default: %(default)s)",
        )
        subparser.add_argument(
            "--keep",
            type=_log_query.parse_count,
            default=0,
            metavar="N",
            help="keep the latest N jobs whatever their age (default: %(default)s)",
        )
        subparser.add_argument(
            "--dryrun", action="store_true", help="show what would go, and remove nothing"
        )
        subparser.add_argument(
            "-y", "--yes", action="store_true", help="do not ask for confirmation"
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        store = Store()
        before_s = args.older_than.timestamp()
        jobs = find(store, int(before_s * 1e9), args.keep)
        cached = _cached_layers(before_s)
        words = _words(jobs, cached)
        if args.dryrun or not (jobs or cached):
            text = f"would be removed: {words}" if words else "nothing to remove"
            _output.log().info("%s", text)
            self._report(args, jobs, cached)
            return
        _confirm(words, args.yes)
        removed = [one for one in jobs if remove(store, one)]
        gone = [(path, size) for path, size in cached if _unlink(path)]
        compact(store)
        _output.log().info("removed %s", _words(removed, gone) or "nothing")
        self._report(args, removed, gone)

    def _report(
        self, args: argparse.Namespace, jobs: list[Remains], cached: list[tuple[str, int]]
    ) -> None:
        if args.json:
            _output.out_json(
                {
                    "jobs": [job.app_id for job in jobs if job.app_id],
                    "stray_logs": [path for job in jobs if not job.app_id for path in job.paths],
                    "cached_layers": len(cached),
                    "bytes": _bytes(jobs, cached),
                    "removed": not args.dryrun,
                }
            )


def _confirm(words: str, yes: bool) -> None:
    if yes:
        return
    if not (_look.is_terminal(sys.stdin) and _look.is_terminal(sys.stderr)):
        msg = f"remove {words}: give `--yes`, as there is no terminal to ask on"
        _output.fail(msg, kind="NotConfirmed", code=2)
    sys.stderr.write(f"remove {words}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        _output.fail("nothing was done", kind="Declined")


def _words(jobs: list[Remains], cached: list[tuple[str, int]]) -> str:
    """Returns the number of jobs and their size: ``3 jobs (1.2 MB)``; empty for none."""
    counts = {
        "job": sum(bool(job.app_id) for job in jobs),
        "folder of stray logs": sum(not job.app_id for job in jobs),
        "cached layer": len(cached),
    }
    parts = [_plural(number, name) for name, number in counts.items() if number]
    return f"{', '.join(parts)} ({size_text(_bytes(jobs, cached))})" if parts else ""


def _plural(number: int, name: str) -> str:
    if number == 1:
        return f"1 {name}"
    first, space, rest = name.partition(" of ")
    return f"{number} {first}s{space}{rest}"


def _bytes(jobs: list[Remains], cached: list[tuple[str, int]]) -> int:
    return sum(job.bytes for job in jobs) + sum(size for _, size in cached)


def size_text(size: float) -> str:
    """Formats a size.

    >>> size_text(999), size_text(1234567)
    ('999 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _cached_layers(before_s: float) -> list[tuple[str, int]]:
    """Returns cached image layers that were not used since, with their sizes."""
    found = []
    for folder, _, names in os.walk(os.path.join(home_dir(), "cache", "images")):
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except OSError:  # it was removed meanwhile
                continue
            if status.st_mtime < before_s:  # each use updates it
                found.append((path, status.st_size))
    return found


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError as err:
        _output.log().debug("`%s` was not removed: %s", path, err)
        return False
    return True
