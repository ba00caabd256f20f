"""``torchx status``: the state of an app."""

import argparse
import sys

from torchx._startup.lazy_logger import get_logger
from torchx._words import did_you_mean
from torchx.cli import _arguments, _output
from torchx.cli._look import is_terminal
from torchx.cli._reader import while_read
from torchx.cli.cmd_base import AppHandleSubCommand, parse_app_handle, report_failure
from torchx.runner import Runner
from torchx.schedulers.api import one_look
from torchx.specs import AppState, AppStatus

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx status local_cwd://torchx/train-x1
  torchx status --json --roles trainer HANDLE
  torchx status --wait --exit-status HANDLE    for scripts: 1 if the app did not succeed"""


def parse_list_arg(arg: str) -> list[str] | None:
    """Parses a comma-separated list of names; `None`, for all, if it is empty."""
    return arg.split(",") if arg else None


class CmdStatus(AppHandleSubCommand):
    """Prints the state of an app and of its replicas."""

    last_app = True

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Show the state of an app and of its replicas."
        subparser.epilog = EPILOG
        super().add_arguments(subparser)
        subparser.add_argument(
            "--roles",
            type=str,
            default="",
            metavar="ROLE[,...]",
            help="only the replicas of these roles (default: all)",
        )
        subparser.add_argument("--wait", action="store_true", help="return when the app has ended")
        subparser.add_argument(
            "--watch",
            action="store_true",
            help="show each change until its end: in place on a terminal, as lines elsewhere",
        )
        subparser.add_argument(
            "--exit-status",
            action="store_true",
            help="exit with 1 if the app failed or was cancelled",
        )
        _arguments.add_json(subparser)

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        handle = args.app_handle
        if args.watch:
            with while_read():
                self._watch(args, runner)
            return
        waited = None
        if args.wait:
            with while_read():
                waited = runner.wait(handle, wait_interval=1)
        with one_look():  # the cause comes from the same snapshot
            status = waited if args.wait else runner.status(handle)
            if status is None:
                self.exit_missing_app(handle)
            roles = parse_list_arg(args.roles)
            _warn_unknown_roles(status, roles)
            if args.json:
                _output.out_json(_status_json(status, roles, handle))
            else:
                self._show(runner, handle, status, roles)
        if args.exit_status and status.state in (AppState.FAILED, AppState.CANCELLED):
            raise SystemExit(1)

    def _show(
        self, runner: Runner, handle: str, status: AppStatus, roles: list[str] | None
    ) -> None:
        if is_terminal(sys.stdout):
            from torchx.cli._status_view import status_text

            _output.out(status_text(runner, handle, status, roles))
            return
        self.print_status(status, roles)
        if status.state in (AppState.SUCCEEDED, AppState.CANCELLED):
            return
        from torchx.cli._explained import explained

        found = explained(runner, handle, status.state)
        if found is not None:
            _output.out(f"Why: {found.line}")

    def print_status(self, status: AppStatus, roles: list[str] | None = None) -> None:
        """Writes the status to stdout; clients replace it or call it."""
        report_failure(status)
        _output.out(status.format(roles))

    def _watch(self, args: argparse.Namespace, runner: Runner) -> None:
        handle, roles = args.app_handle, parse_list_arg(args.roles)
        first = runner.status(handle)
        if first is None:
            self.exit_missing_app(handle)
        _warn_unknown_roles(first, roles)
        from torchx.cli._watch import watch_status

        show = _watch_json if args.json else watch_status
        status = show(runner, handle, roles) or first
        if args.exit_status and status.state in (AppState.FAILED, AppState.CANCELLED):
            raise SystemExit(1)


def _watch_json(runner: Runner, handle: str, roles: list[str] | None) -> AppStatus | None:
    """Prints one line of JSON for each change."""
    status: AppStatus | None = None
    for _ in runner.watch(handle):
        status = runner.status(handle)
        if status is not None:
            _output.out_json(_status_json(status, roles, handle))
    return status


def _status_json(status: AppStatus, roles: list[str] | None, handle: str) -> dict[str, object]:
    scheduler, _, app_id = parse_app_handle(handle)
    described = status.to_json(roles)
    for role in described["roles"]:
        for replica in role["replicas"]:
            replica["state_name"] = AppState(replica["state"]).name
    return {
        **described,
        "handle": handle,
        "app_id": app_id,
        "scheduler": scheduler,
        "ui_url": status.ui_url,
    }


def _warn_unknown_roles(status: AppStatus, roles: list[str] | None) -> None:
    known = [role.role for role in status.roles]
    for name in roles or ():
        if known and name not in known:
            _output.log().warning(
                "the app has no role `%s`, it has: %s.%s",
                name,
                ", ".join(known),
                did_you_mean(name, known),
            )
