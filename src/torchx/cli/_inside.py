"""Arguments of the commands that reach into a running replica."""

import argparse
import os
import sys
from collections.abc import Sequence

from torchx.errors import InvalidInput
from torchx.runner import Runner
from torchx.schedulers.api import ReplicaKey


def add_replica(subparser: argparse.ArgumentParser) -> None:
    """Adds ``[ROLE[/K]]``."""
    subparser.add_argument(
        "replica",
        nargs="?",
        metavar="ROLE[/K]",
        help="the replica (default: the first running one)",
    )


def add_tty(subparser: argparse.ArgumentParser) -> None:
    """Adds the flags about terminal and input."""
    subparser.add_argument(
        "-T",
        "--no-tty",
        action="store_true",
        help="no terminal, even if stdin and stdout are one",
    )
    subparser.add_argument(
        "--no-stdin", action="store_true", help="give the command no input instead of our stdin"
    )


def parse_replica(text: str | None) -> ReplicaKey | None:
    """Parses role and index; ``None`` if none was given.

    >>> parse_replica("worker/1"), parse_replica("worker"), parse_replica(None)
    (('worker', 1), ('worker', 0), None)

    Raises:
        InvalidInput: if the text does not name a replica.
    """
    if text is None:
        return None
    role, slash, number = text.partition("/")
    if not role or (slash and not (number.isascii() and number.isdecimal())):
        msg = f"`{text}` is no replica: write ROLE/K, such as worker/0"
        raise InvalidInput(msg)
    return role, int(number or 0)


def command_apart(subparser: argparse.ArgumentParser) -> None:
    """Makes the parser leave everything after the first ``--`` unparsed: it is the command."""
    parse_flags = subparser.parse_known_args

    def parse_known_args(
        args: "list[str] | None" = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        tokens = list(sys.argv[1:] if args is None else args)
        at = tokens.index("--") if "--" in tokens else len(tokens)
        parsed, extras = parse_flags(tokens[:at], namespace)
        parsed.command = tokens[at + 1 :]
        return parsed, extras

    subparser.parse_known_args = parse_known_args  # type: ignore[method-assign,assignment]  # argparse itself would read the command's options


def run_inside(runner: Runner, args: argparse.Namespace, command: Sequence[str]) -> None:
    """Runs a command in the replica, and ends this process with its exit code."""
    stdin = None if args.no_stdin else _descriptor(sys.stdin)
    tty = not args.no_tty and stdin is not None and os.isatty(stdin) and sys.stdout.isatty()
    code = runner.exec(
        args.app_handle,
        command,
        parse_replica(args.replica),
        tty=tty,
        stdin=stdin,
        stdout=_or(_descriptor(sys.stdout), 1),
        stderr=_or(_descriptor(sys.stderr), 2),
    )
    if code:
        raise SystemExit(code)


def _or(number: int | None, usual: int) -> int:
    return usual if number is None else number


def _descriptor(stream: object) -> int | None:
    """Returns the descriptor of a stream; ``None`` if it is closed or has none."""
    try:
        return int(stream.fileno())  # type: ignore[attr-defined]  # a substitute may lack it
    except (AttributeError, OSError, ValueError):
        return None
