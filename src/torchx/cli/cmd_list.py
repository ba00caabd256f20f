"""``torchx list``: the apps of a scheduler."""

import argparse
import sys
from collections.abc import Iterable
from typing import NoReturn

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output
from torchx.cli._log_query import parse_count
from torchx.cli._look import is_terminal
from torchx.cli._reader import while_read
from torchx.cli.argparse_util import torchxconfig_list
from torchx.cli.cmd_base import SubCommand
from torchx.runner import Runner, config, get_runner
from torchx.schedulers.api import ListAppResponse
from torchx.specs import AppState, CfgVal

logger = get_logger(__name__)  # clients replace it

HANDLE_HEADER = "APP HANDLE"
NAME_HEADER = "APP NAME"
STATUS_HEADER = "APP STATUS"

EPILOG = """\
examples:
  torchx list
  torchx ps -s slurm --state RUNNING,PENDING
  torchx list -o name --state FAILED
  torchx list --json"""


_ROWS = 20
"""Apps that a terminal shows unless more are requested."""


class CmdList(SubCommand):
    """Prints a table of apps."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "List the apps of a scheduler, with their handles and states."
        subparser.epilog = EPILOG
        _arguments.add_scheduler(subparser, torchxconfig_list)
        _arguments.add_cfg(subparser)
        subparser.add_argument(
            "--state",
            type=_arguments.parse_states,
            metavar="STATE[,...]",
            help=f"only apps in these states: {', '.join(state.name for state in AppState)}",
        )
        add = subparser.add_argument
        add("-a", "--all", action="store_true", help=f"all apps, not only the latest {_ROWS}")
        add("-n", "--limit", type=parse_count, metavar="N", help="only the latest N apps")
        add(
            "-o",
            "--output",
            choices=("wide", "json", "yaml", "name"),
            help="wide: all columns; json, yaml: for programs; name: only handles",
        )
        add(
            "-q",
            "--quiet",
            dest="output",
            action="store_const",
            const="name",
            help="only handles, like `-o name`",
        )
        add(
            "--watch",
            action="store_true",
            help="show each change until Ctrl-C: in place on a terminal, as lines elsewhere",
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        scheduler = _arguments.check_scheduler(args.scheduler)
        with get_runner() as runner:
            cfg: dict[str, CfgVal] = {}
            if args.scheduler_args:
                opts = runner.scheduler_run_opts(scheduler)
                cfg = _arguments.parse_cfg(scheduler, opts, args.scheduler_args)
            config.apply(scheduler=scheduler, cfg=cfg)
            if args.watch:
                with while_read():
                    self._watch(runner, args, scheduler, cfg)
            self._print(runner, args, scheduler, _chosen(runner.list(scheduler, cfg or None), args))

    def _watch(
        self, runner: Runner, args: argparse.Namespace, scheduler: str, cfg: dict[str, CfgVal]
    ) -> NoReturn:
        """Shows the apps and their changes, until interrupted."""
        from torchx.cli._list_view import list_text
        from torchx.cli._watch import Screen, changed_rows

        form = "json" if args.json else args.output
        screen = Screen()
        last: list[ListAppResponse] | None = None
        for found in runner.watch_list(scheduler, cfg or None):
            apps = _chosen(found, args)
            if form in ("json", "yaml", "name"):
                self._print(runner, args, scheduler, apps)
            elif screen.redraws:
                shown = apps if args.all else apps[: args.limit or _ROWS]
                more = len(apps) - len(shown)
                screen.show(list_text(runner, shown, more, form == "wide"))
            else:
                for handle, state in changed_rows(last, apps):
                    _output.out(f"{handle} {state}")
            last = apps
        raise AssertionError("`watch_list` never ends by itself")

    def _print(
        self,
        runner: Runner,
        args: argparse.Namespace,
        scheduler: str,
        apps: list[ListAppResponse],
    ) -> None:
        form = "json" if args.json else args.output
        people = form in (None, "wide") and is_terminal(sys.stdout)
        limit = args.limit
        if limit is None and people and not args.all:
            limit = _ROWS
        shown = apps if limit is None else apps[:limit]
        if form == "name":
            if shown:
                _output.out("\n".join([app.app_handle for app in shown]))
        elif form in ("json", "yaml"):
            _print_data(form, [_to_json(app, scheduler) for app in shown])
        elif people:
            from torchx.cli._list_view import list_text

            more = len(apps) - len(shown)
            _output.out(list_text(runner, shown, more, form == "wide"))
        else:
            rows = [(app.app_handle, app.name, str(app.state)) for app in shown]
            _output.out_table([HANDLE_HEADER, NAME_HEADER, STATUS_HEADER], rows)


def _chosen(apps: Iterable[ListAppResponse], args: argparse.Namespace) -> list[ListAppResponse]:
    return [app for app in apps if not args.state or app.state in args.state]


def _to_json(app: ListAppResponse, scheduler: str) -> dict[str, object]:
    return {
        "handle": app.app_handle,
        "app_id": app.app_id,
        "name": app.name,
        "scheduler": scheduler,
        "state": str(app.state),
    }


def _print_data(form: str, rows: list[dict[str, object]]) -> None:
    if form == "json":
        _output.out_json(rows)
        return
    import yaml

    _output.out(yaml.safe_dump(rows, sort_keys=False), end="")
