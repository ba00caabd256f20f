"""``torchx rerun``: launches a recorded request again, with changes."""

import argparse
import dataclasses
import os
from collections.abc import Mapping

from torchx.cli import _arguments, _changes, _handles, _output, _secrets
from torchx.cli._dryrun import dryrun_json, dryrun_text
from torchx.cli._inside import command_apart
from torchx.cli._run_args import TorchXRunArgs
from torchx.cli.argparse_util import ArgOnceAction
from torchx.cli.cmd_base import help_of_handle
from torchx.cli.cmd_run import CmdRun
from torchx.errors import InvalidInput
from torchx.runner import Runner
from torchx.schedulers import get_scheduler_factories
from torchx.specs import AppDef, CfgVal

EPILOG = """\
The request is the one recorded when the app was launched from here, with the images built then.
Words after `--` replace the arguments of the program.

examples:
  torchx rerun HANDLE
  torchx rerun --dryrun --env LR=0.1 --replicas 4 HANDLE    what would be different
  torchx rerun --workspace . HANDLE                         with the current code
  torchx rerun -s slurm -cfg partition=gpu HANDLE           on another scheduler
  torchx rerun HANDLE -- --epochs 10"""


class CmdRerun(CmdRun):
    """Launches a recorded request again."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        self._subparser = subparser
        subparser.description = "Launch a recorded request again, with changes by flags."
        subparser.usage = "%(prog)s [options] APP_HANDLE [-- ARGS ...]"
        subparser.epilog = EPILOG
        subparser.add_argument(
            "app_handle", nargs="?", metavar="APP_HANDLE", help=help_of_handle(last_app=True)
        )
        names = list(get_scheduler_factories())
        subparser.add_argument(
            "-s",
            "--scheduler",
            choices=_arguments.SchedulerNames(names),
            action=ArgOnceAction,
            metavar="NAME",
            help="another scheduler (default: that of the app); its options are not carried over",
        )
        _arguments.add_cfg(subparser)
        _changes.add_changes(subparser)
        subparser.add_argument(
            "--workspace", metavar="PATH", help="build its code again from there (default: do not)"
        )
        for name, text in (
            ("--dryrun", "show the difference and what would be submitted, and submit nothing"),
            ("--wait", "return when the app has ended (local schedulers always do)"),
            ("--log", "print the logs to stderr, and wait (local schedulers always do)"),
            ("--detach", "return at once; a local job goes on by itself"),
        ):
            subparser.add_argument(name, action="store_true", help=text)
        _secrets.add_show_secrets(subparser)
        _arguments.add_json(subparser)
        command_apart(subparser)

    def _run(self, runner: Runner, args: argparse.Namespace) -> None:
        recorded = runner.recorded(_handles.resolve(args.app_handle, runner))
        self._app = _changes.changed(recorded.app, args, args.command)
        scheduler = _arguments.check_scheduler(args.scheduler or recorded.scheduler)
        same = scheduler == recorded.scheduler
        opts = runner.scheduler_run_opts(scheduler)
        known = {name for name, _ in opts}
        cfg: dict[str, CfgVal] = {}
        if same:
            cfg = {name: value for name, value in recorded.cfg.items() if name in known}
        cfg.pop("detach", None)
        if args.scheduler_args:
            cfg.update(_arguments.parse_cfg(scheduler, opts, args.scheduler_args))
        if args.detach and scheduler.startswith("local") and "detach" in known:
            cfg["detach"] = True
        if args.workspace is None:
            _check_copies(self._app)
        run_args = TorchXRunArgs(
            component_name="",
            scheduler=scheduler,
            scheduler_args={},
            scheduler_cfg=cfg,
            dryrun=args.dryrun,
            wait=args.wait,
            log=args.log,
            workspace=args.workspace or "",
        )
        if not args.dryrun:
            self._submit(runner, run_args, args)
            return
        before = _shape(recorded.scheduler, recorded.cfg, recorded.app)
        lines = _changes.difference(before, _shape(scheduler, cfg, self._app), args.show_secrets)
        self._show(runner, run_args, args, lines)

    def _show(
        self,
        runner: Runner,
        run_args: TorchXRunArgs,
        args: argparse.Namespace,
        lines: list[str],
    ) -> None:
        info = runner.dryrun(
            self._app, run_args.scheduler, run_args.scheduler_cfg, run_args.workspace or None
        )
        if args.json:
            shown = dryrun_json(info, run_args.scheduler, args.show_secrets)
            _output.out_json({**shown, "difference": lines})
            return
        text = "\n".join(lines) if lines else "(none)"
        _output.out(f"=== DIFFERENCE ===\n{text}\n{dryrun_text(info, args.show_secrets)}")

    def _launch(self, runner: Runner, run_args: TorchXRunArgs) -> str:
        handle = runner.run(
            self._app, run_args.scheduler, run_args.scheduler_cfg, run_args.workspace or None
        )
        return str(handle)


def _shape(scheduler: str, cfg: Mapping[str, CfgVal], app: AppDef) -> dict[str, object]:
    """Returns the compared data: scheduler, options, and the app with its roles by name."""
    options = {f"cfg.{name}": value for name, value in cfg.items() if name != "detach"}
    roles = {role.name: dataclasses.asdict(role) for role in app.roles}
    return {"scheduler": scheduler, **options, "app": app.name, **roles}


def _check_copies(app: AppDef) -> None:
    """Refuses an app whose code was in a directory that is gone."""
    for role in app.roles:
        if os.path.isabs(role.image) and not os.path.isdir(role.image):
            msg = (
                f"role `{role.name}` ran in `{role.image}`, which is gone; give its code with"
                " `--workspace PATH`, or another `--image`"
            )
            raise InvalidInput(msg)
