"""``torchx run``: makes an app from a component and submits it."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from torchx._startup import local_supervisor
from torchx.cli import _arguments, _output, _parser, _secrets
from torchx.cli._run_args import (
    MISSING_COMPONENT_ERROR_MSG,
    TorchXRunArgs,
    check_component_args,
    component_start,
    repeated_options,
    torchx_run_args_from_argparse,
    torchx_run_args_from_json,
)
from torchx.cli.argparse_util import ArgOnceAction, torchxconfig_run
from torchx.cli.cmd_base import SubCommand, parse_app_handle
from torchx.cli.cmd_builtins import CmdBuiltins
from torchx.errors import (
    BackendUnavailable,
    ComponentNotFoundException,
    ComponentValidationException,
)
from torchx.runner import Runner, config, get_runner
from torchx.schedulers.api import one_look
from torchx.specs import (
    TORCHX_CONTEXT_NAME,
    AppDryRunInfo,
    AppState,
    AppStatus,
    CfgVal,
    InvalidRunConfigException,
    Workspace,
)
from torchx.specs.finder import get_component

if TYPE_CHECKING:
    from threading import Thread

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

# how long an interrupted command waits for the last lines of its job
_LAST_LINES_S = 2

# flags that go together with --stdin
_BESIDE_STDIN = ("stdin", "dryrun", "json", "show_secrets", "log_level", "help")


def _parse_component_name_and_args(
    component_name_and_args: list[str],
    subparser: argparse.ArgumentParser,
    dirs: list[str] | None = None,
) -> tuple[str, list[str]]:
    """The component and its arguments; the component may come from ``[cli:run]``.

    Args:
        dirs: where to look for config files instead of the default places.
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
        _arguments.add_scheduler(subparser, torchxconfig_run)
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
        _parse_component_apart(subparser, self._actions)

    def _add_flags(self, subparser: argparse.ArgumentParser) -> None:
        def flag(name: str, text: str, *more: str) -> None:
            subparser.add_argument(name, *more, action="store_true", help=text)

        flag("--dryrun", "show what would be submitted, and submit nothing")
        flag("--wait", "return when the app has ended (local schedulers always do)")
        flag("--log", "print the logs to stderr, and wait (local schedulers always do)")
        flag(
            "--detach",
            "return at once, a local job goes on by itself; `torchx log -t HANDLE` follows it",
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
        """The JSON object on stdin, read once; ends the command when it is something else."""
        if self._stdin_json is None:
            import json

            try:
                data = json.load(sys.stdin)
            except ValueError as err:
                msg = f"stdin does not hold valid JSON: {err}"
                _output.fail(msg, kind="InvalidInput", code=2)
            if not isinstance(data, dict):
                _output.fail(
                    f"stdin must hold a JSON object, it holds a {type(data).__name__}",
                    kind="InvalidInput",
                    code=2,
                )
            self._stdin_json = data
        if args is not None and args.dryrun:
            self._stdin_json["dryrun"] = True
        return self._stdin_json

    def verify_no_extra_args(self, args: argparse.Namespace) -> None:
        """Refuses flags beside ``--stdin`` that would say the same as the JSON."""
        if not args.stdin:
            return
        extra = [
            next(name for name in action.option_strings if name.startswith("--"))
            for action in self._actions
            if action.dest not in _BESIDE_STDIN
            and getattr(args, action.dest) != self._parser().get_default(action.dest)
        ]
        if args.component_name_and_args:
            extra.append("COMPONENT [ARGS]")
        if extra:
            names = ", ".join(extra)
            self._parser().error(
                f"with --stdin the configuration must come from JSON, leave out: {names}"
            )

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
        if run_args.scheduler == "local":
            _output.log().warning(LOCAL_SCHEDULER_WARNING_MSG)
        config.apply(scheduler=run_args.scheduler, cfg=run_args.scheduler_cfg)
        if _detaches(runner, run_args.scheduler, args):
            run_args.scheduler_cfg["detach"] = True
        if run_args.dryrun:
            self._dryrun(runner, run_args, args)
        else:
            self._submit(runner, run_args, args)

    def _args_from_stdin(self, runner: Runner, args: argparse.Namespace) -> TorchXRunArgs:
        import json

        run_args = torchx_run_args_from_json(self.torchx_json_from_stdin(args))
        opts = runner.scheduler_run_opts(run_args.scheduler)
        run_args.scheduler_cfg = {
            **run_args.scheduler_cfg,
            **opts.cfg_from_json_repr(json.dumps(run_args.scheduler_args)),
        }
        if run_args.component_args and not run_args.component_args_str:
            with _component_errors(run_args):
                component = get_component(run_args.component_name)
            check_component_args(component.fn, run_args.component_name, run_args.component_args)
        return run_args

    def _args_from_flags(self, runner: Runner, args: argparse.Namespace) -> TorchXRunArgs:
        _arguments.check_scheduler(args.scheduler)
        args.scheduler = str(args.scheduler)
        cfg: dict[str, CfgVal] = {}
        if args.scheduler_args:
            opts = runner.scheduler_run_opts(args.scheduler)
            cfg = _arguments.parse_cfg(args.scheduler, opts, args.scheduler_args)
        name, component_args = _parse_component_name_and_args(
            args.component_name_and_args, self._parser()
        )
        return torchx_run_args_from_argparse(args, name, component_args, cfg)

    def _dryrun(self, runner: Runner, run_args: TorchXRunArgs, args: argparse.Namespace) -> None:
        workspace = Workspace.from_str(run_args.workspace) if run_args.workspace else None
        with _component_errors(run_args):
            info = runner.dryrun_component(
                run_args.component_name,
                run_args.component_args_str or run_args.component_args,
                run_args.scheduler,
                workspace=workspace,
                cfg=run_args.scheduler_cfg,
                parent_run_id=run_args.parent_run_id,
            )
        if args.json:
            _output.out_json(_dryrun_json(info, run_args.scheduler, args.show_secrets))
        else:
            _output.out(_dryrun_text(info, args.show_secrets))

    def _submit(self, runner: Runner, run_args: TorchXRunArgs, args: argparse.Namespace) -> None:
        scheduler, cfg = run_args.scheduler, run_args.scheduler_cfg
        local = scheduler.startswith("local")
        no_wait = bool(getattr(args, "detach", False)) or bool(local and cfg.get("detach"))
        if scheduler == "local_cwd":
            local_supervisor.while_starting(_import_reader)
        self._attached = local and not cfg.get("detach") and _can_detach(runner, scheduler)
        self._launching = True
        with _component_errors(run_args):
            handle = runner.run_component(
                run_args.component_name,
                run_args.component_args_str or run_args.component_args,
                scheduler,
                workspace=run_args.workspace,
                cfg=cfg,
                parent_run_id=run_args.parent_run_id,
            )
        self._handle = handle
        _output.log().info("launched app: %s", handle)
        if not args.json:
            _tell(_output.out, handle)

        stream = run_args.log or run_args.tee_logs or (local and not no_wait)
        if stream or run_args.wait or (local and not no_wait):
            self._wait(runner, handle, run_args, stream, args.json)
            return
        with one_look():
            status = None if local and no_wait else runner.status(handle)
            if local:
                _output.log().info("follow it with: torchx log -t %s", handle)
            elif status is not None:
                _output.log().info("%s", status.format())
            _report_unwatched(runner, handle)
        if args.json:
            _tell(_output.out_json, _outcome_json(handle, status or (runner.status(handle))))

    def _wait(
        self, runner: Runner, handle: str, run_args: TorchXRunArgs, stream: bool, as_json: bool
    ) -> None:
        reader = _log_thread(runner, handle, run_args.tee_logs) if stream else None
        if reader is not None:
            reader.start()
        self._reader = reader
        with _terminated_as_exception():
            try:
                status = runner.wait(handle, wait_interval=1)
            except BackendUnavailable:
                if not self._attached:
                    _output.log().warning(
                        "job `%s` may go on by itself; %s", handle, _advice(handle)
                    )
                raise
            if status is None:
                msg = f"unknown status of `{handle}`, the scheduler does not know the app any more"
                raise RuntimeError(msg)
            if reader is not None:
                reader.join()
        if as_json:
            _tell(_output.out_json, _outcome_json(handle, status))
        if status.state == AppState.SUCCEEDED:
            _output.log().info("job finished: %s", status.state)
            return
        _output.log().error("%s", _failure_text(runner, handle, status))
        raise SystemExit(1)

    def _report_interrupt(self, number: int) -> None:
        """The last line of an interrupted run: what has become of the job."""
        import signal

        name = signal.Signals(number).name
        handle = self._handle
        if not self._launching:
            message = f"interrupted by {name} before the job was launched"
        elif self._attached:
            message = f"job `{handle or '(being launched)'}` was cancelled ({name})"
        elif handle is None:
            message = f"interrupted by {name} while the job was being launched, see `torchx list`"
        else:
            message = (
                f"job `{handle}` keeps running ({name} ended only this command); {_advice(handle)}"
            )
        _output.log().warning("%s", message)
        _output.error_json("Interrupted", message)


def _advice(handle: str) -> str:
    """What can be done about a job that goes on."""
    return (
        f"look at it with `torchx status {handle}`, follow it with `torchx log -t {handle}`,"
        f" end it with `torchx cancel {handle}`"
    )


def _detaches(runner: Runner, scheduler: str, args: argparse.Namespace) -> bool:
    """Whether ``--detach`` is given and is an option of this scheduler."""
    wanted = getattr(args, "detach", False) and scheduler.startswith("local")
    return bool(wanted) and runner.scheduler_run_opts(scheduler).get("detach") is not None


def _can_detach(runner: Runner, scheduler: str) -> bool:
    """Whether jobs end with this command unless they are detached; containers go on anyway."""
    known = scheduler == "local_cwd"  # saves making its options
    return known or runner.scheduler_run_opts(scheduler).get("detach") is not None


def _report_unwatched(runner: Runner, handle: str) -> None:
    """Says of a job that nothing waits for whether that leaves out what its options ask for."""
    needs_watcher = getattr(runner, "needs_watcher", None)  # a stand-in may lack it
    try:
        unwatched = needs_watcher is not None and needs_watcher(handle)
    except BackendUnavailable:  # it is launched all the same
        return
    if unwatched:
        _output.log().info(
            "when a replica fails, nobody ends the others, since nothing waits for the job;"
            " `-cfg on_failure=wait` says that this is wanted"
        )


def _parse_component_apart(
    subparser: argparse.ArgumentParser, actions: list[argparse.Action]
) -> None:
    """Makes the parser leave everything from the component on alone, whatever it looks like."""
    flags = {name: action.nargs != 0 for action in actions for name in action.option_strings}
    flags.update({"-h": False, "--help": False})
    parse_flags = subparser.parse_known_args

    def parse_known_args(
        args: "list[str] | None" = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        tokens = list(sys.argv[1:] if args is None else args)
        start = component_start(tokens, flags, _default_component)
        parsed, extras = parse_flags(tokens[:start], namespace)
        parsed.component_name_and_args = tokens[start:]
        return parsed, extras

    subparser.parse_known_args = parse_known_args  # type: ignore[method-assign,assignment]  # argparse itself would read the component's options


def _import_reader() -> None:
    """Imports what shows the logs and reports the end."""
    from importlib import import_module

    for name in ("logging", "torchx.cli.cmd_log", "torchx.cli._log_printer"):
        import_module(name)


def _default_component() -> str | None:
    return torchxconfig_run.section("run").get("component")


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it has been removed; only a run needs it
        return ""


@contextmanager
def _component_errors(run_args: TorchXRunArgs) -> Iterator[None]:
    """Ends the command on what is wrong with the component or the scheduler's options."""
    name = run_args.component_name
    try:
        yield
    except (ComponentNotFoundException, ComponentValidationException) as err:
        _component_failure(name, err)
    except FileNotFoundError as err:
        path, colon, _ = name.rpartition(":")
        if not colon or os.path.exists(path):
            raise
        _component_failure(name, err)
    except InvalidRunConfigException as err:
        hint = (
            "give options of the scheduler with `-cfg key=value[,key=value]`, or in section"
            f" [{run_args.scheduler}] of `.torchxconfig`;"
            f" `torchx runopts {run_args.scheduler}` shows them"
        )
        _output.fail(str(err), kind=type(err).__name__, hint=hint, code=2)


def _component_failure(name: str, err: Exception) -> NoReturn:
    _output.log().debug("traceback", exc_info=err)
    text = str(err)
    message = text if name in text else f"component `{name}`: {text}"
    code = 1 if isinstance(err, ComponentValidationException) else 2
    _output.fail(message, kind=type(err).__name__, code=code)


@contextmanager
def _terminated_as_exception() -> Iterator[None]:
    """Turns SIGTERM into an exception while waiting, where the scheduler has not done so."""
    import signal
    import threading

    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    from torchx.cli import _errors

    def interrupt(number: int, _frame: object) -> None:
        raise _errors.Interrupted(number)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _tell(write: Callable[[Any], None], result: object) -> None:
    """Writes a result to stdout. The job does not end because nobody reads it any more."""
    try:
        write(result)
    except BrokenPipeError:
        _output.close_stdout()


def _log_thread(runner: Runner, handle: str, tee: bool) -> "Thread":
    """A thread, not yet started, that writes the logs of the job to stderr."""
    if tee:
        from torchx.util.log_tee_helpers import tee_logs

        return tee_logs(
            dst=sys.stderr,
            app_handle=handle,
            regex=None,
            runner=runner,
            should_tail=True,
            streams=None,
            colorize=_output.colored(sys.stderr),
        )
    import threading

    from torchx.cli.cmd_log import stream_logs

    def follow() -> None:
        try:
            stream_logs(sys.stderr, runner, handle)
        except Exception as err:  # noqa: BLE001  the job matters more than its log on the terminal
            _output.log().warning("the logs could not be followed to the end: %s", err)
            _output.log().debug("traceback", exc_info=err)

    return threading.Thread(target=follow, name="log", daemon=True)


def _failure_text(runner: Runner, handle: str, status: AppStatus) -> str:
    """Final state, and of each failed replica exit code, reason, last lines and log file."""
    lines = [f"job `{handle}` {status.state}"]
    failed = getattr(runner, "failed_replicas", _none_known)(handle)
    for replica in failed:
        attempt = f", attempt {replica.attempt}" if replica.attempt else ""
        lines.append(f"  {replica.role}/{replica.replica}{attempt}: {_ending(replica)}")
        lines += [f"    | {line.rstrip()}" for line in replica.last_lines]
        if replica.log_path:
            lines.append(f"    log: {replica.log_path}")
    if not failed:
        lines.append(status.format())
    elif status.msg and not any(str(replica.reason) in status.msg for replica in failed):
        lines.append(f"  {status.msg}")
    return "\n".join(lines).rstrip()


def _none_known(_handle: str) -> list[Any]:
    return []


def _ending(replica: Any) -> str:  # a FailedReplica, or what a stand-in gives
    reason = str(replica.reason or "")
    how = _exit_text(replica.exit_code)
    told = how.rpartition(" ")[2]  # the number or the name of the signal
    if not how or (reason and told in reason):
        return reason or "failed"
    return f"{how}, {reason}" if reason else how


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    if code >= 0:
        return f"exit code {code}"
    import signal

    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _outcome_json(handle: str, status: AppStatus | None) -> dict[str, object]:
    scheduler, _, app_id = parse_app_handle(handle)
    return {
        "handle": handle,
        "app_id": app_id,
        "scheduler": scheduler,
        "state": None if status is None else status.state.name,
        "ui_url": None if status is None else status.ui_url,
    }


def _dryrun_text(info: "AppDryRunInfo[Any]", show_secrets: bool) -> str:
    from pprint import pformat

    app: dict[str, Any] = dataclasses.asdict(info.app) if info.app is not None else {}
    request = str(info)
    if not show_secrets:
        request = _secrets.mask_text(request, app, info.request)
        app = _secrets.mask_app(app)
    shown = pformat(app, indent=2, width=80)
    return f"\n=== APPLICATION ===\n{shown}\n\n=== SCHEDULER REQUEST ===\n{request}"


def _request_data(info: "AppDryRunInfo[Any]") -> "dict[str, Any] | None":
    """The request as plain data, if it is a dataclass."""
    if dataclasses.is_dataclass(info.request) and not isinstance(info.request, type):
        return dataclasses.asdict(info.request)
    return None


def _dryrun_json(
    info: "AppDryRunInfo[Any]", scheduler: str, show_secrets: bool
) -> dict[str, object]:
    app = None if info.app is None else dataclasses.asdict(info.app)
    cfg = dict(info.cfg) if isinstance(info.cfg, Mapping) else str(info.cfg)
    data = _request_data(info)
    request: object = str(info) if data is None else data
    if not show_secrets:
        if isinstance(request, str):
            request = _secrets.mask_text(request, app or {}, info.request)
        else:
            request = _secrets.mask_request(request, app or {})
        cfg = _secrets.mask_data(cfg)
        app = app and _secrets.mask_app(app)
    return {"scheduler": scheduler, "cfg": cfg, "app": app, "request": request}
