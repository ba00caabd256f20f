"""The parsers: one for the command line, and one per command, filled on first use."""

import argparse
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchx._words import did_you_mean
from torchx.cli import _output, argparse_util
from torchx.util._terminal import fitted_help, fitted_to, help_lines, help_width
from torchx.version import __version__

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from torchx.cli.cmd_base import SubCommand


_DEFAULT_COLOR = "auto"

SHORT_NAMES = {"logs": "log", "ps": "list", "rm": "delete"}
"""Names of commands that users of other tools expect."""

QUIET = "WARNING"
"""The level of ``-q``."""

_LEVELS = {
    "CRITICAL": 50,
    "FATAL": 50,
    "ERROR": 40,
    "WARNING": 30,
    "WARN": 30,
    "INFO": 20,
    "DEBUG": 10,
    "NOTSET": 0,
}


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the layout of examples; finds the width without importing `shutil`."""

    def __init__(
        self,
        prog: str,
        indent_increment: int = 2,
        max_help_position: int = 30,
        width: int | None = None,
    ) -> None:
        super().__init__(prog, indent_increment, max_help_position, width or help_width())

    def _split_lines(self, text: str, width: int) -> list[str]:
        return help_lines(text, width)


class Parser(argparse.ArgumentParser):
    """Adds suggestions to usage errors, and writes them as JSON if requested."""

    def __init__(self, **kwargs: "Any") -> None:  # argparse's own keywords
        # argparse makes a formatter for each argument that is added
        formatter = functools.partial(HelpFormatter, width=help_width())
        super().__init__(formatter_class=formatter, **kwargs)

    def error(self, message: str) -> "NoReturn":
        suggestion = self._suggestion(message)
        if suggestion:
            message = f"{message}.{suggestion}"
        _output.error_json("UsageError", message)
        from torchx._secrets import mask_message

        message = mask_message(message)
        text = f"{self.format_usage()}{self.prog}: error: {message}\n"
        self.exit(2, fitted_to(sys.stderr, text))

    def format_help(self) -> str:
        return fitted_help(super().format_help())

    def _suggestion(self, message: str) -> str:
        """Returns a suggestion for the unknown word in argparse's message."""
        head, _, rest = message.partition(":")
        # argparse has no public list of what was added to a parser
        known = [name for action in self._actions for name in action.option_strings]
        if head == "unrecognized arguments":
            words = [word.partition("=")[0] for word in rest.split()]
            return "".join(did_you_mean(w, known) for w in words if w.startswith("-"))
        if " invalid choice: " in message:
            word = rest.partition("'")[2].partition("'")[0]
            choices = [c for action in self._actions for c in action.choices or ()]
            return did_you_mean(word, choices)
        return ""


class CommandParser(Parser):
    """The parser of one command, which adds its arguments when it first parses."""

    def __init__(self, *, cmd_name: str, subcmds: "Mapping[str, SubCommand]", **kw: "Any") -> None:
        super().__init__(**kw)
        self.cmd_name = cmd_name
        self._subcmds = subcmds
        self._filled = False

    def parse_known_args(  # type: ignore[override]  # argparse declares overloads for Namespace types
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if not self._filled:
            self._filled = True
            self._fill()
            return self.parse_known_args(args, namespace)  # the command may have replaced it
        if args is not None and "--json" in args:
            _output.set_json(True)
        parsed, extras = super().parse_known_args(args, namespace)
        if extras:  # argparse would report them with the usage of the root
            self.error(f"unrecognized arguments: {' '.join(extras)}")
        return parsed, extras

    def _fill(self) -> None:
        cmd = self._subcmds[self.cmd_name]
        cmd.add_arguments(self)
        if "-q" not in self._option_string_actions:
            add_quiet(self)
        if "-v" not in self._option_string_actions and self.cmd_name != "run":
            add_verbose(self)
        argparse_util.apply_config_defaults(self, self.cmd_name)
        self.set_defaults(func=cmd.run, cmd_parser=self)


class RootParser(Parser):
    """Shows the same help as without any parser."""

    def __init__(self, subcmds: "Mapping[str, SubCommand]") -> None:
        from torchx.cli import _help

        super().__init__(prog="torchx", usage=_help.USAGE)
        self._subcmds = subcmds

    def _suggestion(self, message: str) -> str:
        """Suggests to move an option of a command behind it; it is not a misspelt global option."""
        head, _, rest = message.partition(":")
        if head == "unrecognized arguments" and not rest.strip().startswith(("--l", "--c", "--v")):
            return " Options of a command follow its name."
        return super()._suggestion(message)

    def format_help(self) -> str:
        from torchx.cli import _help

        usable = getattr(self._subcmds, "usable", None)  # commands of a caller are a plain dict
        return _help.render(usable() if usable else self._subcmds)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Adds ``-q``, which is accepted before and after a command."""
    parser.add_argument(
        "-q",
        "--quiet",
        dest="log_level",
        action="store_const",
        const=QUIET,
        default=argparse.SUPPRESS,  # the level given before the command
        help="print only results, warnings and errors",
    )


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Adds ``-v``; behind ``run`` it is an option of a component."""
    parser.add_argument(
        "-v",
        dest="log_level",
        action="store_const",
        const="DEBUG",
        default=argparse.SUPPRESS,  # the level given before the command
        help="say all, with times, as `--log_level DEBUG`",
    )


def create_root(subcmds: "Mapping[str, SubCommand]") -> argparse.ArgumentParser:
    """Creates the root parser with one sub-parser per command, in the order of the mapping."""
    parser = RootParser(subcmds)
    add = parser.add_argument
    add("--log_level", metavar="LEVEL", default=_default_log_level())
    add("--color", choices=_output.COLOR_MODES, default=_DEFAULT_COLOR)
    add_quiet(parser)
    add_verbose(parser)
    add("-V", "--version", action="version", version=f"torchx-{__version__}")
    subparsers = parser.add_subparsers(
        metavar="COMMAND", parser_class=CommandParser, prog=parser.prog
    )
    for name in subcmds:
        subparsers.add_parser(name, cmd_name=name, subcmds=subcmds)
    for short, name in SHORT_NAMES.items():
        if name in subcmds and short not in subcmds:
            subparsers.add_parser(short, cmd_name=name, subcmds=subcmds)
    return parser


def command_of(word: str, subcmds: "Mapping[str, SubCommand]") -> str:
    """Returns the command for a word; if a plugin uses a short name, it is the plugin's."""
    return word if word in subcmds else SHORT_NAMES.get(word, word)


def parse(
    subcmds: "Mapping[str, SubCommand]", argv: Sequence[str]
) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parses the whole command line; if the command comes first, only its parser is needed."""
    name = command_of(argv[0], subcmds) if argv else ""
    if name in subcmds:
        parser: argparse.ArgumentParser = CommandParser(
            prog=f"torchx {name}", cmd_name=name, subcmds=subcmds
        )
        parser.set_defaults(log_level=_default_log_level(), color=_DEFAULT_COLOR)
        return parser, parser.parse_args(argv[1:])
    if "run" not in argv:  # of `run`, only the part before the component counts
        _output.set_json("--json" in argv)
    parser = create_root(subcmds)
    return parser, parser.parse_args(argv)


def log_level(parser: argparse.ArgumentParser, text: str) -> int:
    """Returns the level of a name, ignoring case, or of a number; else exits with a usage error."""
    if text.isdigit():
        return int(text)
    level = _LEVELS.get(text.upper())
    if level is None:
        parser.error(
            f"argument --log_level: `{text}` is not a log level (also read from $LOGLEVEL);"
            " choose from DEBUG, INFO, WARNING, ERROR, CRITICAL or a number"
        )
    return level


def report_config(args: argparse.Namespace) -> None:
    """Reports a config file that could not be read or that has unknown options."""
    parser = getattr(args, "cmd_parser", None)
    if isinstance(parser, CommandParser):
        argparse_util.report_config(parser, parser.cmd_name)


def _default_log_level() -> str:
    return os.environ.get("LOGLEVEL") or "INFO"


def level_of_environment() -> int:
    """Returns the level that holds until the arguments are parsed."""
    text = _default_log_level()
    return int(text) if text.isdigit() else _LEVELS.get(text.upper(), _LEVELS["INFO"])
