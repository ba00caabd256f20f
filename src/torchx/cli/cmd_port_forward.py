"""``torchx port-forward``: forwards ports of a replica to this machine."""

import argparse

from torchx.cli import _inside, _output
from torchx.cli.cmd_base import AppHandleSubCommand
from torchx.errors import InvalidInput
from torchx.runner import Runner

EPILOG = """\
examples:
  torchx port-forward HANDLE 6006            TensorBoard of the first replica on port 6006 here
  torchx port-forward HANDLE worker/1 8080:80 9090
  torchx port-forward HANDLE :6006           on any free port, which is printed"""

_MOST = 65535


class CmdPortForward(AppHandleSubCommand):
    """Makes ports of a replica reachable from this machine until it is interrupted."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = (
            "Reach ports of a running replica from this machine, until Ctrl-C or its end."
        )
        subparser.usage = "%(prog)s [options] APP_HANDLE [ROLE[/K]] [LOCAL:]PORT ..."
        subparser.epilog = EPILOG
        super().add_arguments(subparser)
        subparser.add_argument(
            "words",
            nargs="+",
            metavar="[ROLE[/K]] [LOCAL:]PORT",
            help="the replica (default: the first running one), and its ports",
        )
        subparser.add_argument(
            "--address",
            default="127.0.0.1",
            help="address to listen on (default: %(default)s, which only this machine reaches)",
        )

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        name, ports = parse_words(args.words)
        replica = _inside.parse_replica(name)
        opened = []
        try:
            for local, port in ports:
                forwarded = runner.forward_port(
                    args.app_handle, port, replica, local=local, address=args.address
                )
                opened.append(forwarded)
                _output.out(f"{args.address}:{forwarded.number} -> {port}")
            status = runner.wait(args.app_handle, wait_interval=5)
            ending = "is gone" if status is None else f"is {status.state.name}"
            _output.log().info(
                "app `%s` %s, no port is forwarded any more", args.app_handle, ending
            )
        finally:
            for forwarded in opened:
                forwarded.close()


def parse_words(words: list[str]) -> tuple[str | None, list[tuple[int, int]]]:
    """Parses the replica, and for each port its local (0 for any) and remote number.

    >>> parse_words(["worker/1", "8080:80", "90", ":6006"])
    ('worker/1', [(8080, 80), (90, 90), (0, 6006)])

    Raises:
        InvalidInput: if there is no port, or an invalid one.
    """
    first = words[0].replace(":", "")
    name, rest = (None, words) if first.isdecimal() else (words[0], words[1:])
    if not rest:
        msg = f"`{words[0]}` is no port: write [LOCAL:]PORT, such as 6006 or 8080:80"
        raise InvalidInput(msg)
    return name, [_ports(word) for word in rest]


def _ports(word: str) -> tuple[int, int]:
    here, colon, there = word.rpartition(":")
    if not colon:
        here = there
    numbers = [here or "0", there]
    if not all(n.isascii() and n.isdecimal() and int(n) <= _MOST for n in numbers) or there == "0":
        msg = f"`{word}` is no port: write [LOCAL:]PORT with numbers from 1 to {_MOST}"
        raise InvalidInput(msg)
    return int(here or 0), int(there)
