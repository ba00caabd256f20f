"""``torchx list``: the apps of a scheduler."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from torchx.cli import _arguments, _output, _selection
from torchx.cli._watch import Screen, changed_rows
from torchx.cli.argparse_util import torchxconfig_list
from torchx.cli.cmd_base import SubCommand
from torchx.runner import Runner, config, get_runner
from torchx.schedulers.api import ListAppResponse
from torchx.specs import AppState, CfgVal

HANDLE_HEADER = "APP HANDLE"
NAME_HEADER = "APP NAME"
STATUS_HEADER = "APP STATUS"

EPILOG = """\
examples:
  torchx list
  torchx list -s slurm --state RUNNING,PENDING
  torchx list --json"""


class CmdList(SubCommand):
    """Prints a table of apps."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "List the apps of a scheduler, with their handles and states."
        subparser.epilog = EPILOG
        _arguments.add_scheduler(subparser, torchxconfig_list)
        _arguments.add_cfg(subparser)
        subparser.add_argument(
            "--state",
            type=_selection.parse_states,
            metavar="STATE[,...]",
            help=f"only apps in these states: {', '.join(state.name for state in AppState)}",
        )
        subparser.add_argument(
            "--watch",
            action="store_true",
            help="show each change until Ctrl-C: in place on a terminal, as lines elsewhere",
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        _arguments.check_scheduler(args.scheduler)
        scheduler = str(args.scheduler)
        with get_runner() as runner:
            cfg: dict[str, CfgVal] = {}
            if args.scheduler_args:
                opts = runner.scheduler_run_opts(scheduler)
                cfg = _arguments.parse_cfg(scheduler, opts, args.scheduler_args)
            config.apply(scheduler=scheduler, cfg=cfg)
            if args.watch:
                _watch(runner, scheduler, cfg, args)
            apps: Sequence[ListAppResponse] = runner.list(scheduler, cfg or None)
        _show(_chosen(apps, args), scheduler, args.json)


def _chosen(apps: Sequence[ListAppResponse], args: argparse.Namespace) -> list[ListAppResponse]:
    return [app for app in apps if not args.state or app.state in args.state]


def _show(apps: Sequence[ListAppResponse], scheduler: str, as_json: bool) -> None:
    if as_json:
        _output.out_json([_row_json(app, scheduler) for app in apps])
        return
    _output.out_table([HANDLE_HEADER, NAME_HEADER, STATUS_HEADER], _cells(apps))


def _cells(apps: Sequence[ListAppResponse]) -> list[list[str]]:
    return [[app.app_handle, app.name, str(app.state)] for app in apps]


def _row_json(app: ListAppResponse, scheduler: str) -> dict[str, str]:
    return {
        "handle": app.app_handle,
        "app_id": app.app_id,
        "name": app.name,
        "scheduler": scheduler,
        "state": str(app.state),
    }


def _watch(
    runner: Runner, scheduler: str, cfg: dict[str, CfgVal], args: argparse.Namespace
) -> NoReturn:
    """Shows the apps and what changes of them, until it is interrupted."""
    screen = Screen()
    last: list[ListAppResponse] | None = None
    for found in runner.watch_list(scheduler, cfg or None):
        apps = _chosen(found, args)
        if args.json:
            _show(apps, scheduler, True)
        elif screen.redraws:
            headers = [HANDLE_HEADER, NAME_HEADER, STATUS_HEADER]
            screen.show(_output.table_text(headers, _cells(apps)))
        else:
            for handle, state in changed_rows(last, apps):
                _output.out(f"{handle} {state}")
        last = apps
    raise AssertionError("a watch of a list has no end")
