"""``torchx run``: makes an app from a component and submits it."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from torchx._startup import late_names, local_supervisor
from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output, _parser, _secrets
from torchx.cli._component_line import component_errors, parse_component_apart
from torchx.cli._run_args import (
    MISSING_COMPONENT_ERROR_MSG,
    TorchXRunArgs,
    repeated_options,
    torchx_run_args_from_argparse,
    torchx_run_args_from_json,
)
from torchx.cli.argparse_util import ArgOnceAction, torchxconfig_run
from torchx.cli.cmd_base import SubCommand
from torchx.errors import (
    BackendUnavailable,
)
from torchx.runner import Runner, config, get_runner
from torchx.schedulers import canonical_name
from torchx.schedulers.api import one_look
from torchx.specs import (
    TORCHX_CONTEXT_NAME,
    AppState,
    CfgVal,
    Workspace,
)

if TYPE_CHECKING:
    from threading import Thread

    from torchx.cli._run_report import RunReport
    from torchx.cli.cmd_builtins import CmdBuiltins
else:
    # published here, and another command
    __getattr__, __dir__ = late_names(
        __name__, {"CmdBuiltins": "torchx.cli.cmd_builtins:CmdBuiltins"}
    )

logger = get_logger(__name__)  # clients replace it

__all__ = [
    "LOCAL_SCHEDULER_WARNING_MSG",
    "MISSING_COMPONENT_ERROR_MSG",
    "CmdBuiltins",
    "CmdRun",
    "TorchXRunArgs",
    "_parse_component_name_and_args",
    "torchx_run_args_from_argparse",
    "torchx_run_args_from_json",
]

LOCAL_SCHEDULER_WARNING_MSG = (
    "the scheduler name `local` is deprecated, use `local_cwd` (or `local_docker` for containers)"
)

EPILOG = """\
COMPONENT is the name of a built-in or registered component (`torchx builtins`), a function in a
file (path/to/file.py:function) or in a module (package.module:function). What follows it goes to
the component; `torchx run COMPONENT --help` shows its arguments.

examples:
  torchx run utils.echo --msg hello
  torchx run -s local_cwd -cfg log_dir=/tmp/logs my_job.py:train --epochs 3
  torchx run dist.ddp -j 1x2 --script train.py -- --lr 0.1
  torchx run --detach utils.sh sleep 600          the job goes on without this process
  torchx run --dryrun -s slurm dist.ddp -j 2x8 --script train.py
  torchx run --stdin --json < job.json"""

# seconds that an interrupted command waits for the last lines of its job
_LAST_LINES_S = 2


def _parse_component_name_and_args(
    component_name_and_args: list[str],
    subparser: argparse.ArgumentParser,
    dirs: list[str] | None = None,
) -> tuple[str, list[str]]:
    """Returns the component and its arguments; the component may come from ``[cli:run]``.

    Args:
        dirs: folders to search for config files instead of the default ones.
    """
    rest = list(component_name_and_args)
    if rest[:1] == ["--"]:
        rest.pop(0)
    if rest and not rest[0].startswith("-"):
        component: str | None = rest.pop(0)
    else:
        component = config.get_config(prefix="cli", name="run", key="component", dirs=dirs)
    repeated = repeated_options(rest)
    if repeated:
        subparser.error(f"component options given more than once: {repeated}, give each once")
    if not component:
        subparser.error(MISSING_COMPONENT_ERROR_MSG)
    return component, rest


class CmdRun(SubCommand):
    """Runs a component; on local schedulers until the job has ended."""

    def __init__(self) -> None:
        self._subparser: argparse.ArgumentParser | None = None
        self._actions: list[argparse.Action] = []
        self._stdin_json: dict[str, Any] | None = None
        self._handle: str | None = None
        self._attached = False
        self._launching = False
        self._reader: Thread | None = None

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        self._subparser = subparser
        subparser.description = "Make an app from a component and run it on a scheduler."
        subparser.usage = "%(prog)s [options] COMPONENT [ARGS ...]"
        subparser.epilog = EPILOG
        before = len(subparser._actions)  # argparse has no public list of what was added
        _arguments.add_scheduler(subparser, torchxconfig_run, several=True)
        _arguments.add_cfg(subparser)
        self._add_flags(subparser)
        _arguments.add_json(subparser)
        self._actions = subparser._actions[before:]
        subparser.add_argument(
            "component_name_and_args",
            nargs=argparse.REMAINDER,
            metavar="COMPONENT [ARGS]",
            help="the component and its arguments, see below",
        )
        parse_component_apart(subparser, self._actions)

    def _add_flags(self, subparser: argparse.ArgumentParser) -> None:
        def flag(name: str, text: str, *more: str) -> None:
            subparser.add_argument(name, *more, action="store_true", help=text)

        flag("--dryrun", "show what would be submitted, and submit nothing")
        flag("--strict", "refuse an app of which the scheduler would drop something")
        flag("--wait", "return when the app has ended (local schedulers always do)")
        flag("--log", "print the logs to stderr, and wait (local schedulers always do)")
        flag(
            "--detach",
            "return at once; a local job goes on by itself; `torchx log -t HANDLE` follows it",
            "--no-wait",
        )
        subparser.add_argument(
            "--workspace",
            "--buck-target",
            type=str,
            action=torchxconfig_run,
            default=_cwd(),
            metavar="PATH",
            help="what to build into the image; empty for nothing (default: the current directory)",
        )
        subparser.add_argument(
            "--parent_run_id",
            type=str,
            action=ArgOnceAction,
            metavar="ID",
            help="run that this one belongs to, for trackers",
        )
        flag("--tee_logs", "print the logs with the helper of torchx.util.log_tee_helpers")
        flag("--stdin", "read the run as a JSON object from stdin instead of from arguments")
        _secrets.add_show_secrets(subparser)
        _parser.add_quiet(subparser)

    def run(self, args: argparse.Namespace) -> None:
        os.environ.setdefault(TORCHX_CONTEXT_NAME, "cli_run")
        component_defaults = config.load_sections(prefix="component")
        self._handle = None
        self._launching = False
        try:
            with get_runner(component_defaults=component_defaults) as runner:
                self._run(runner, args)
        except BaseException as err:
            from torchx.cli import _errors

            number = _errors.signal_of(err)
            if number is not None:
                if self._reader is not None and self._attached:  # its job has ended by now
                    self._reader.join(_LAST_LINES_S)
                self._report_interrupt(number)
            raise

    def torchx_json_from_stdin(self, args: argparse.Namespace | None = None) -> dict[str, Any]:
        """Returns the JSON object on stdin, read once; ends the command if it is something else."""
        if self._stdin_json is None:
            from torchx.cli._run_stdin import read_json

            self._stdin_json = read_json()
        if args is not None and args.dryrun:
            self._stdin_json["dryrun"] = True
        return self._stdin_json

    def verify_no_extra_args(self, args: argparse.Namespace) -> None:
        """Refuses flags beside ``--stdin`` that duplicate the JSON."""
        if args.stdin:
            from torchx.cli._run_stdin import refuse_flags

            refuse_flags(self._parser(), self._actions, args)

    def _parser(self) -> argparse.ArgumentParser:
        assert self._subparser is not None  # `add_arguments` comes before `run`
        return self._subparser

    def _run(self, runner: Runner, args: argparse.Namespace) -> None:
        self.verify_no_extra_args(args)
        run_args = (
            self._args_from_stdin(runner, args)
            if args.stdin
            else self._args_from_flags(runner, args)
        )
        if "," in run_args.scheduler:
            from torchx.cli._portability import compare

            compare(runner, run_args, args)
            return
        run_args.scheduler = canonical_name(run_args.scheduler, runner.scheduler_backends())
        if run_args.scheduler == "local":  # that of a plugin
            _output.log().warning(LOCAL_SCHEDULER_WARNING_MSG)
        config.apply(scheduler=run_args.scheduler, cfg=run_args.scheduler_cfg)
        if _detaches(runner, run_args.scheduler, args):
            run_args.scheduler_cfg["detach"] = True
        if run_args.dryrun:
            self._dryrun(runner, run_args, args)
        else:
            self._submit(runner, run_args, args)

    def _args_from_stdin(self, runner: Runner, args: argparse.Namespace) -> TorchXRunArgs:
        from torchx.cli import _run_stdin

        return _run_stdin.run_args(runner, self.torchx_json_from_stdin(args))

    def _args_from_flags(self, runner: Runner, args: argparse.Namespace) -> TorchXRunArgs:
        args.scheduler = _arguments.check_scheduler(args.scheduler)
        cfg: dict[str, CfgVal] = {}
        if "," in args.scheduler and not args.dryrun:
            self._parser().error("several schedulers are compared by a dry run: add --dryrun")
        if args.scheduler_args and "," not in args.scheduler:
            opts = runner.scheduler_run_opts(args.scheduler)
            cfg = _arguments.parse_cfg(args.scheduler, opts, args.scheduler_args)
        name, component_args = _parse_component_name_and_args(
            args.component_name_and_args, self._parser()
        )
        return torchx_run_args_from_argparse(args, name, component_args, cfg)

    def _dryrun(self, runner: Runner, run_args: TorchXRunArgs, args: argparse.Namespace) -> None:
        workspace = Workspace.from_str(run_args.workspace) if run_args.workspace else None
        with component_errors(run_args):
            info = runner.dryrun_component(
                run_args.component_name,
                run_args.component_args_str or run_args.component_args,
                run_args.scheduler,
                workspace=workspace,
                cfg=run_args.scheduler_cfg,
                parent_run_id=run_args.parent_run_id,
                **_strictly(run_args),
            )
        from torchx.cli._dryrun import dryrun_json, dryrun_text

        if args.json:
            _output.out_json(dryrun_json(info, run_args.scheduler, args.show_secrets))
        else:
            _output.out(dryrun_text(info, args.show_secrets))

    def _submit(self, runner: Runner, run_args: TorchXRunArgs, args: argparse.Namespace) -> None:
        scheduler, cfg = run_args.scheduler, run_args.scheduler_cfg
        local = scheduler.startswith("local")
        no_wait = bool(getattr(args, "detach", False)) or bool(local and cfg.get("detach"))
        if scheduler == "local_cwd":
            local_supervisor.while_starting(_import_reader)
        self._attached = local and not cfg.get("detach") and _can_detach(runner, scheduler)
        self._launching = True
        with component_errors(run_args):
            handle = self._launch(runner, run_args)
        self._handle = handle
        from torchx.cli._run_report import RunReport, outcome_json, tell

        report = RunReport(runner, args.json)
        report.launched(handle)

        stream = run_args.log or run_args.tee_logs or (local and not no_wait)
        if stream or run_args.wait or (local and not no_wait):
            self._wait(runner, handle, run_args, stream, report)
            return
        with one_look():
            status = None if local and no_wait else runner.status(handle)
            report.left_alone(handle, status)
        if args.json:
            tell(_output.out_json, outcome_json(handle, status or (runner.status(handle))))

    def _launch(self, runner: Runner, run_args: TorchXRunArgs) -> str:
        return runner.run_component(
            run_args.component_name,
            run_args.component_args_str or run_args.component_args,
            run_args.scheduler,
            workspace=run_args.workspace,
            cfg=run_args.scheduler_cfg,
            parent_run_id=run_args.parent_run_id,
            **_strictly(run_args),
        )

    def _wait(
        self,
        runner: Runner,
        handle: str,
        run_args: TorchXRunArgs,
        stream: bool,
        report: "RunReport",
    ) -> None:
        from torchx.cli._run_report import advice, name_of, outcome_json, tell
        from torchx.cli._run_wait import log_thread, terminated_as_exception

        reader = log_thread(runner, handle, run_args.tee_logs) if stream else None
        if reader is not None:
            reader.start()
        self._reader = reader
        with terminated_as_exception():
            try:
                status = runner.wait(handle, wait_interval=1)
            except BackendUnavailable:
                if not self._attached:
                    text = "job `%s` may go on by itself; %s"
                    _output.log().warning(text, name_of(handle), advice(handle))
                raise
            if status is None:
                msg = f"unknown status of `{handle}`, the scheduler does not know the app any more"
                raise RuntimeError(msg)
            if reader is not None:
                reader.join()
        if report.as_json:
            tell(_output.out_json, outcome_json(handle, status))
        with one_look():
            report.finished(handle, status, reader is not None)
        if status.state != AppState.SUCCEEDED:
            raise SystemExit(1)

    def _report_interrupt(self, number: int) -> None:
        """Logs the last line of an interrupted run: the fate of the job."""
        import signal

        from torchx.cli._run_report import interruption

        name = signal.Signals(number).name
        message = interruption(name, self._handle, self._launching, self._attached)
        _output.log().warning("%s", message)
        _output.error_json("Interrupted", message)


def _strictly(run_args: TorchXRunArgs) -> dict[str, bool]:
    """Returns the keyword only if it is set: substitutes for a runner may not accept it."""
    return {"strict": True} if run_args.strict else {}


def _detaches(runner: Runner, scheduler: str, args: argparse.Namespace) -> bool:
    """Returns True if ``--detach`` is given and is an option of this scheduler."""
    wanted = getattr(args, "detach", False) and scheduler.startswith("local")
    return bool(wanted) and runner.scheduler_run_opts(scheduler).get("detach") is not None


def _can_detach(runner: Runner, scheduler: str) -> bool:
    """Returns True if jobs end with this command unless detached; containers always go on."""
    known = scheduler == "local_cwd"  # saves making its options
    return known or runner.scheduler_run_opts(scheduler).get("detach") is not None


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it has been removed; only a run needs it
        return ""


def _import_reader() -> None:
    """Imports what shows the logs and reports the end."""
    from importlib import import_module

    for name in _READERS:
        import_module(name)


_READERS = (
    "torchx.cli.cmd_log",
    "torchx.cli._run_report",
    "torchx.cli._run_wait",
    "torchx.runner._watching",
    "torchx.schedulers._core.reading",
    "torchx.schedulers.local_scheduler._logs",
)
