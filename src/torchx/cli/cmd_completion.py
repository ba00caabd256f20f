"""``torchx completion``: a script that makes a shell complete commands."""

import argparse

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _output
from torchx.cli.cmd_base import SubCommand

logger = get_logger(__name__)  # clients replace it

SHELLS = ("bash", "zsh", "fish")

EPILOG = """\
examples:
  eval "$(torchx completion bash)"       in ~/.bashrc
  eval "$(torchx completion zsh)"        in ~/.zshrc, after compinit
  torchx completion fish | source        in ~/.config/fish/config.fish"""


class CmdCompletion(SubCommand):
    """Prints the code for one shell; the words come from ``torchx`` itself."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = (
            "Print shell code that completes commands, flags, schedulers, components and their"
            " arguments, and handles of local apps."
        )
        subparser.epilog = EPILOG
        subparser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))

    def run(self, args: argparse.Namespace) -> None:
        from argcomplete.shell_integration import shellcode

        _output.out(shellcode(["torchx"], shell=args.shell))
