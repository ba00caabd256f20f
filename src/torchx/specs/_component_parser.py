"""The command line of a component."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from torchx._words import closest
from torchx.util._terminal import fitted_help, fitted_to, help_lines, help_width


class TorchXArgumentHelpFormatter(
    argparse.RawDescriptionHelpFormatter, argparse.MetavarTypeHelpFormatter
):
    """Keeps the description's line breaks, and shows types and required options."""

    def __init__(
        self,
        prog: str,
        indent_increment: int = 2,
        max_help_position: int = 24,
        width: int | None = None,
    ) -> None:
        super().__init__(prog, indent_increment, max_help_position, width or help_width())

    def _split_lines(self, text: str, width: int) -> list[str]:
        return help_lines(text, width)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if action.default is argparse.SUPPRESS:
            return text
        if action.nargs == "*":  # there may be none
            return text
        return f"{text} (required)" if action.required else f"{text} (default: %(default)s)"


class ComponentParser(argparse.ArgumentParser):
    """Parses a component's arguments; reads its docstring only if help is requested."""

    component: Callable[..., Any]

    def format_help(self) -> str:
        from torchx.specs._docstrings import get_fn_docstring

        description, arg_help = get_fn_docstring(self.component)
        self.description = description.replace("%", "%%")
        for action in self._actions:
            if action.dest in arg_help:
                action.help = arg_help[action.dest].replace("%", "%%")
        return fitted_help(super().format_help())

    def error(self, message: str) -> Any:
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            message += self._suggestions(message.removeprefix(prefix).split())
        from torchx._secrets import mask_message

        text = f"{self.format_usage()}{self.prog}: error: {mask_message(message)}\n"
        self.exit(2, fitted_to(sys.stderr, text))

    def _suggestions(self, unknown: list[str]) -> str:
        options = [o for action in self._actions for o in action.option_strings]
        close = [m for u in unknown if (m := closest(u.partition("=")[0], options))]
        return f" (did you mean {', '.join(close)}?)" if close else ""
