"""Selects apps for commands that accept many: by handles, patterns, states, ages."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NoReturn

from torchx._launches import launches
from torchx._words import did_you_mean
from torchx.cli import _arguments, _handles, _log_query, _look, _output
from torchx.cli.argparse_util import ArgOnceAction
from torchx.cli.cmd_base import help_of_handle
from torchx.errors import InvalidInput
from torchx.runner import Runner, config
from torchx.specs import AppState, CfgVal

if TYPE_CHECKING:
    from datetime import datetime

    from torchx.schedulers.api import ListAppResponse

_SHOWN = 10
_WILD = ("*", "?", "[")


def add_selection(subparser: argparse.ArgumentParser) -> None:
    """Adds handles and patterns, filters for the apps of a scheduler, and ``--yes``."""
    subparser.add_argument(
        "app_handles",
        nargs="*",
        metavar="APP_HANDLE",
        help=f"{help_of_handle(last_app=False)}; or a pattern such as 'sweep-*' of app ids or"
        " names, or 'slurm://*/12*' of handles",
    )
    _arguments.add_scheduler(subparser, ArgOnceAction)
    _arguments.add_cfg(subparser)
    subparser.add_argument(
        "-a",
        "--all",
        action="store_true",
        help="all apps of the scheduler that match the rest",
    )
    subparser.add_argument(
        "--state",
        type=_arguments.parse_states,
        metavar="STATE[,...]",
        help=f"only apps in these states: {', '.join(state.name for state in AppState)}",
    )
    subparser.add_argument(
        "--older-than",
        type=_log_query.parse_time,
        metavar="AGE",
        help="only apps launched longer ago: 90s, 10m, 2h, 7d, or before a date",
    )
    subparser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


class Selection:
    """The selected apps, by their handles.

    Args:
        asked: True if they were not named one by one, so that the user must confirm.
    """

    def __init__(self, handles: list[str], asked: bool) -> None:
        self.handles = handles
        self.asked = asked


def choose(
    args: argparse.Namespace, runner: Runner, wanted: Callable[[AppState], bool]
) -> Selection:
    """Returns the apps that the arguments select.

    Args:
        wanted: returns True for a state that the command acts on; apps named one by one are
            selected in any state.

    Raises:
        InvalidInput: for a pattern that matches no app, or all.
        UnresolvedApp, AmbiguousApp: for text that is not a handle.
    """
    filtered = args.state is not None or args.older_than is not None
    if args.all and args.app_handles:
        raise InvalidInput("give either handles or patterns, or `--all`")
    if not args.app_handles and not args.all and not filtered:
        msg = "give handles or patterns, or filters: --all, --state, --older-than"
        args.cmd_parser.error(msg)
    if filtered and any(not _is_pattern(text) for text in args.app_handles):
        raise InvalidInput("`--state` and `--older-than` filter apps: give a pattern, `--all`")
    named = [_handles.resolve(t, runner) for t in args.app_handles if not _is_pattern(t)]
    patterns = [text for text in args.app_handles if _is_pattern(text)]
    if not patterns and args.app_handles:
        return Selection([*dict.fromkeys(named)], asked=False)
    args.scheduler = _arguments.check_scheduler(args.scheduler)
    listed = _Listed(runner, args)
    rows: list[ListAppResponse] = [] if patterns else listed.of(str(args.scheduler))
    for pattern in patterns:
        rows += _matching(pattern, listed, str(args.scheduler))
    chosen = [row for row in rows if wanted(row.state) and _fits(row, args)]
    return Selection([*dict.fromkeys([*named, *(row.app_handle for row in chosen)])], asked=True)


def confirm(selection: Selection, verb: str, yes: bool) -> None:
    """Asks for confirmation; ends the command if it is refused, or if there is no terminal."""
    if not selection.asked or yes or not selection.handles:
        return
    shown = [f"  {handle}" for handle in selection.handles[:_SHOWN]]
    rest = len(selection.handles) - len(shown)
    if rest:
        shown.append(f"  ... and {rest} more")
    count = "1 app" if len(selection.handles) == 1 else f"{len(selection.handles)} apps"
    if not (_look.is_terminal(sys.stdin) and _look.is_terminal(sys.stderr)):
        _refuse(f"{verb} {count}: give `--yes`, as there is no terminal to ask on", shown)
    sys.stderr.write("\n".join([*shown, f"{verb} {count}? [y/N] "]))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        _output.fail("nothing was done", kind="Declined")


class _Listed:
    """The apps of schedulers, each listed once."""

    def __init__(self, runner: Runner, args: argparse.Namespace) -> None:
        self._runner = runner
        self._args = args
        self._found: dict[str, list[ListAppResponse]] = {}

    def of(self, scheduler: str) -> "list[ListAppResponse]":
        """Returns all apps of a scheduler."""
        if scheduler not in self._found:
            cfg: dict[str, CfgVal] = {}
            if self._args.scheduler_args:
                opts = self._runner.scheduler_run_opts(scheduler)
                cfg = _arguments.parse_cfg(scheduler, opts, self._args.scheduler_args)
            config.apply(scheduler=scheduler, cfg=cfg)
            self._found[scheduler] = self._runner.list(scheduler, cfg or None)
        return self._found[scheduler]


def _matching(pattern: str, listed: _Listed, scheduler: str) -> "list[ListAppResponse]":
    """Returns the apps that match the pattern: by handle if it is a pattern of handles."""
    name, separator, _ = pattern.partition("://")
    whole = bool(separator)
    rows = listed.of(name if whole else scheduler)
    found = [row for row in rows if _matches(pattern, row, whole)]
    where = name if whole else scheduler
    if not found:
        names = (row.app_id for row in rows)
        msg = f"no app of `{where}` matches `{pattern}`.{did_you_mean(pattern.strip('*'), names)}"
        raise InvalidInput(f"{msg} `torchx list -s {where}` shows them")
    if len(found) == len(rows) and not pattern.strip("*?").rpartition("/")[2]:
        msg = f"`{pattern}` matches all {len(rows)} apps of `{where}`: use `--all` to confirm"
        raise InvalidInput(msg)
    return found


def _matches(pattern: str, row: "ListAppResponse", whole: bool) -> bool:
    if whole:
        return fnmatchcase(row.app_handle, pattern)
    return fnmatchcase(row.app_id, pattern) or bool(row.name and fnmatchcase(row.name, pattern))


def _fits(row: "ListAppResponse", args: argparse.Namespace) -> bool:
    if args.state is not None and row.state not in args.state:
        return False
    if args.older_than is None:
        return True
    made_s = created_s(row)
    if made_s is None:
        _output.log().info("`%s` is left alone: its age is not known", row.app_handle)
        return False
    before: datetime = args.older_than
    return made_s < before.timestamp()


def created_s(row: "ListAppResponse") -> float | None:
    """Returns when the app was launched, from our records if the scheduler does not know."""
    made_ns: int | None = getattr(row, "created_ns", None)
    if made_ns is not None:
        return made_ns / 1e9
    return next((float(x.time_s) for x in launches() if x.handle == row.app_handle), None)


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in _WILD)


def _refuse(message: str, shown: Sequence[str]) -> NoReturn:
    _output.fail(message, kind="NotConfirmed", hint="\n".join(shown), code=2)


def count(words: Iterable[object]) -> str:
    """Returns a number of apps, in words."""
    number = len([*words])
    return "1 app" if number == 1 else f"{number} apps"
