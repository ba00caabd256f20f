"""Arguments that several commands share."""

import argparse

from torchx._words import did_you_mean
from torchx.cli import _output
from torchx.cli.argparse_util import ArgOnceAction
from torchx.schedulers import (
    SCHEDULER_ALIASES,
    canonical_name,
    get_default_scheduler_name,
    get_scheduler_factories,
)
from torchx.specs import CfgVal, runopts

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
        type=str,
        action=action,
        choices=SeveralNames(names) if several else SchedulerNames(names),
        default=default,
        metavar="NAME",
        help=f"one of {', '.join(names)} (default: %(default)s)"
        + ("; several, separated by commas, for `--dryrun`" if several else ""),
    )


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

    Refuses an unknown name from a config file, which argparse does not check.
    """
    names = SeveralNames(get_scheduler_factories())
    if scheduler not in names:
        origin = getattr(scheduler, "origin", "the configuration")
        _output.fail(
            f"unknown scheduler `{scheduler}` in {origin}; choose from {', '.join(names)}."
            + did_you_mean(scheduler, names),
            kind="UnknownSchedulerException",
            code=2,
        )
    return ",".join(canonical_name(name, [*names]) for name in str(scheduler).split(","))
