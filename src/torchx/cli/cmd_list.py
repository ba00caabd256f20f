"""``torchx list``: the apps of a scheduler."""

import argparse

from torchx.cli import _arguments, _output, _selection
from torchx.cli.argparse_util import torchxconfig_list
from torchx.cli.cmd_base import SubCommand
from torchx.runner import config, get_runner
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
            apps = runner.list(scheduler, cfg or None)
        if args.state:
            apps = [app for app in apps if app.state in args.state]
        if args.json:
            _output.out_json(
                [
                    {
                        "handle": app.app_handle,
                        "app_id": app.app_id,
                        "name": app.name,
                        "scheduler": scheduler,
                        "state": str(app.state),
                    }
                    for app in apps
                ]
            )
            return
        rows = [[app.app_handle, app.name, str(app.state)] for app in apps]
        _output.out_table([HANDLE_HEADER, NAME_HEADER, STATUS_HEADER], rows)
