"""Arguments that several commands share."""

import argparse
from collections.abc import Callable

from torchx._words import did_you_mean
from torchx.cli import _output
from torchx.cli.argparse_util import ArgOnceAction
from torchx.schedulers import (
    SCHEDULER_ALIASES,
    canonical_name,
    get_default_scheduler_name,
    get_scheduler_factories,
)
from torchx.specs import AppState, CfgVal, runopts

DEFAULT_SCHEDULER = "local_cwd"


class SchedulerNames(list[str]):
    """The registered names of schedulers; also contains their aliases, which are not shown."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(SCHEDULER_ALIASES.get(str(name)))


class SeveralNames(SchedulerNames):
    """Like ``SchedulerNames``, but accepts several names separated by commas."""

    def __contains__(self, given: object) -> bool:
        return all(super(SeveralNames, self).__contains__(n) for n in str(given).split(","))


def add_scheduler(
    subparser: argparse.ArgumentParser, action: type[argparse.Action], several: bool = False
) -> None:
    """Adds ``-s``; the default is `local_cwd` whatever plugins are installed."""
    names = list(get_scheduler_factories())
    default = DEFAULT_SCHEDULER if DEFAULT_SCHEDULER in names else get_default_scheduler_name()
    subparser.add_argument(
        "-s",
        "--scheduler",
        type=_each_of(names) if several else str,
        action=action,
        choices=SeveralNames(names) if several else SchedulerNames(names),
        default=default,
        metavar="NAME",
        help=f"one of {', '.join(names)} (default: %(default)s)"
        + ("; several, separated by commas, for `--dryrun`" if several else ""),
    )


def _each_of(names: list[str]) -> "Callable[[str], str]":
    """Reads names with commas between; of several, the wrong one is named in the error."""

    def read(text: str) -> str:
        parts = text.split(",")
        wrong = [name for name in parts if name not in SchedulerNames(names)]
        if len(parts) > 1 and wrong:
            msg = f"invalid choice: {wrong[0]!r} (choose from {', '.join(map(repr, names))})"
            raise argparse.ArgumentTypeError(msg)
        return text

    read.__name__ = "scheduler"  # what argparse calls it
    return read


def add_cfg(subparser: argparse.ArgumentParser) -> None:
    """Adds ``-cfg``."""
    subparser.add_argument(
        "-cfg",
        "--scheduler_args",
        type=str,
        action=ArgOnceAction,
        metavar="KEY=VALUE[,...]",
        help="options of the scheduler; `torchx runopts NAME` shows them",
    )


def add_json(subparser: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    subparser.add_argument(
        "--json",
        action="store_true",
        help="write JSON to stdout and nothing else, errors included",
    )


def parse_cfg(scheduler: str, opts: runopts, text: str) -> dict[str, CfgVal]:
    """Parses ``-cfg``; ends the command if that fails."""
    try:
        return opts.cfg_from_str(text)
    except ValueError as err:
        _output.fail(
            f"cannot read `-cfg {text}`: {err}",
            kind=type(err).__name__,
            hint=f"write -cfg key=value[,key=value]; `torchx runopts {scheduler}` shows the keys",
            code=2,
        )


def check_scheduler(scheduler: str) -> str:
    """Returns the name that the scheduler is registered by.

    Ends the command for an unknown name that argparse did not check: one from a config file, or in
    a list.
    """
    names = SchedulerNames(get_scheduler_factories())
    given = str(scheduler).split(",")
    for name in given:
        if name not in names:
            origin = getattr(scheduler, "origin", "")  # the command line needs no naming
            _output.fail(
                f"unknown scheduler `{name}`{origin and f' in {origin}'}; choose from"
                f" {', '.join(names)}.{did_you_mean(name, names)}",
                kind="UnknownSchedulerException",
                code=2,
            )
    return ",".join(canonical_name(name, [*names]) for name in given)


def parse_states(text: str) -> frozenset[AppState]:
    """Parses names of states, ignoring case."""
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in AppState.__members__:
            valid = list(AppState.__members__)
            msg = f"`{name}` is not a state, choose from {', '.join(valid)}."
            raise argparse.ArgumentTypeError(msg + did_you_mean(name, valid))
    return frozenset(AppState[name] for name in names)
