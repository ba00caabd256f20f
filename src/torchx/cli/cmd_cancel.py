"""``torchx cancel``: asks for the end of an app."""

import argparse

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output
from torchx.cli.cmd_base import AppHandleSubCommand, parse_app_handle
from torchx.runner import Runner
from torchx.specs import AppState, is_terminal

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx cancel local_cwd://torchx/train-x1
  torchx cancel --wait HANDLE    return when the app is gone"""


class CmdCancel(AppHandleSubCommand):
    """Cancels an app; an app that is over is no error."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Cancel an app. An app that has ended stays as it is."
        subparser.epilog = EPILOG
        super().add_arguments(subparser)
        subparser.add_argument(
            "--wait", action="store_true", help="return when the app has come to its end"
        )
        _arguments.add_json(subparser)

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        handle = args.app_handle
        before, unknown = state_of(runner, handle)
        runner.cancel(handle)
        if unknown:
            self.exit_missing_app(handle)
        if args.wait:
            runner.wait(handle, wait_interval=1)
        after, _ = state_of(runner, handle)
        if before is not None and is_terminal(before):
            _output.log().info("app `%s` had ended before: %s", handle, before)
        elif after is not None and is_terminal(after):
            _output.log().info("app `%s` is %s", handle, after)
        else:
            _output.log().info("app `%s` is being cancelled", handle)
        if args.json:
            _output.out_json(outcome_json(handle, after))


def state_of(runner: Runner, handle: str) -> tuple[AppState | None, bool]:
    """The state of the app as far as it can be had, and whether the scheduler knows no such app."""
    try:
        status = runner.status(handle)
    except Exception as err:  # noqa: BLE001  the report is extra, the command itself tells errors
        _output.log().debug("no status of `%s`: %s", handle, err)
        return None, False
    return (None, True) if status is None else (status.state, False)


def outcome_json(handle: str, state: AppState | None) -> dict[str, object]:
    """What cancel and delete answer."""
    scheduler, _, app_id = parse_app_handle(handle)
    return {
        "handle": handle,
        "app_id": app_id,
        "scheduler": scheduler,
        "state": None if state is None else state.name,
    }
