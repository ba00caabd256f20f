"""``torchx describe``: the definition of an app."""

import argparse
import dataclasses
import sys

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output, _secrets
from torchx.cli._look import is_terminal
from torchx.cli.cmd_base import AppHandleSubCommand, report_failure
from torchx.runner import Runner
from torchx.schedulers.api import one_look

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx describe local_cwd://torchx/train-x1
  torchx describe --json HANDLE"""


class CmdDescribe(AppHandleSubCommand):
    """Prints the definition of an app as its scheduler knows it."""

    last_app = True

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Show the definition of an app as its scheduler knows it."
        subparser.epilog = EPILOG
        super().add_arguments(subparser)
        _secrets.add_show_secrets(subparser)
        _arguments.add_json(subparser)

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        with one_look():
            app = runner.describe(args.app_handle)
            if app is None:
                self.exit_missing_app(args.app_handle)
            status = None if args.json else runner.status(args.app_handle)
        if status is not None:
            report_failure(status)
        described = dataclasses.asdict(app)
        if not args.show_secrets:
            described = _secrets.mask_app(described)
        if args.json:
            _output.out_json(described)
            return
        if is_terminal(sys.stdout):
            from torchx.cli._describe_view import describe_text

            _output.out(describe_text(described))
            return
        from pprint import pformat

        _output.out(pformat(described, indent=2, width=80))
