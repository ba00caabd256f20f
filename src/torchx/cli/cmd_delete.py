"""``torchx delete``: removes an app from its scheduler."""

import argparse

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output
from torchx.cli.cmd_base import AppHandleSubCommand
from torchx.cli.cmd_cancel import outcome_json, state_of
from torchx.runner import Runner

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx delete local_cwd://torchx/train-x1"""


class CmdDelete(AppHandleSubCommand):
    """Deletes an app."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = (
            "Delete an app from its scheduler; one that runs is cancelled first."
            " Schedulers that keep no definitions only cancel."
        )
        subparser.epilog = EPILOG
        super().add_arguments(subparser)
        _arguments.add_json(subparser)

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        handle = args.app_handle
        _, unknown = state_of(runner, handle)
        runner.delete(handle)
        if unknown:
            self.exit_missing_app(handle)
        after, _ = state_of(runner, handle)
        if after is None:
            _output.log().info("app `%s` is deleted", handle)
        else:
            _output.log().info("app `%s` is being deleted, it is %s", handle, after)
        if args.json:
            _output.out_json(outcome_json(handle, after))
