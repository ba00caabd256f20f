"""``torchx builtins``: the built-in components, and those of packages."""

import argparse
import sys

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output
from torchx.cli.cmd_base import SubCommand
from torchx.specs import finder

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx builtins
  torchx builtins --print dist.ddp > my_ddp.py    a copy to change, run as my_ddp.py:ddp"""


class CmdBuiltins(SubCommand):
    """Lists components, or prints the source of one."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "List the built-in components, or print the source of one."
        subparser.epilog = EPILOG
        subparser.add_argument(
            "--print",
            type=str,
            metavar="COMPONENT",
            help="print the source of this component",
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        if args.print:
            self._print_source(args.print, args.json)
            return
        components = self._builtins()
        if args.json:
            described = [
                {"name": name, "description": component.description}
                for name, component in components.items()
            ]
            _output.out_json({"components": described})
            return
        from torchx.cli._catalog_view import components_text
        from torchx.cli._look import is_terminal

        if is_terminal(sys.stdout):
            described_by = {name: found.description for name, found in components.items()}
            _output.out(components_text(described_by))
            return
        lines = [f"Found {len(components)} builtin components:"]
        lines += [f" {i:2d}. {name}" for i, name in enumerate(components, start=1)]
        _output.out("\n".join(lines))

    def _builtins(self) -> "dict[str, finder._Component]":
        """Returns the valid components by name."""
        return finder.get_components()

    def _print_source(self, name: str, as_json: bool) -> None:
        source = finder.get_builtin_source(name)
        if as_json:
            _output.out_json({"name": name, "source": source})
        else:
            _output.out(source)
