"""``torchx shell``: a shell in a running replica."""

import argparse

from torchx.cli import _inside
from torchx.cli.cmd_base import AppHandleSubCommand
from torchx.runner import Runner

_SHELL = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi")

EPILOG = """\
examples:
  torchx shell HANDLE
  torchx shell HANDLE worker/3"""


class CmdShell(AppHandleSubCommand):
    """Opens a shell with the environment and in the directory of a replica."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = (
            "Open a shell in a running replica: bash where there is one, else sh."
            " Where stdin is no terminal, it reads commands from it."
        )
        subparser.epilog = EPILOG
        super().add_arguments(subparser)
        _inside.add_replica(subparser)
        _inside.add_tty(subparser)

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        _inside.run_inside(runner, args, _SHELL)
