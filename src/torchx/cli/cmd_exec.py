"""``torchx exec``: runs a command in a running replica."""

import argparse

from torchx.cli import _inside
from torchx.cli.cmd_base import AppHandleSubCommand
from torchx.runner import Runner

EPILOG = """\
The exit code is that of the command. Without a terminal, signals are passed on to it.

examples:
  torchx exec HANDLE -- nvidia-smi
  torchx exec HANDLE worker/3 -- py-spy dump --pid 1
  torchx exec HANDLE -- sh -c 'echo $TORCHX_JOB_ID'
  tar c data | torchx exec HANDLE -- tar x -C /tmp"""


class CmdExec(AppHandleSubCommand):
    """Runs a command with the environment and in the directory of a replica."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = (
            "Run a command in a running replica, with its environment and in its directory."
        )
        subparser.usage = "%(prog)s [options] APP_HANDLE [ROLE[/K]] -- COMMAND [ARGS ...]"
        subparser.epilog = EPILOG
        super().add_arguments(subparser)
        _inside.add_replica(subparser)
        _inside.add_tty(subparser)
        _inside.command_apart(subparser)
        self._subparser = subparser

    def run(self, args: argparse.Namespace) -> None:
        if not args.command:
            self._subparser.error("give a command after `--`: torchx exec HANDLE -- COMMAND")
        super().run(args)

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        _inside.run_inside(runner, args, args.command)
