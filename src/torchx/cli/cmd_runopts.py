"""``torchx runopts``: the options of the schedulers."""

import argparse
import sys

from torchx._startup.lazy_logger import get_logger
from torchx._words import did_you_mean
from torchx.cli import _arguments, _output, _secrets
from torchx.cli._look import is_terminal
from torchx.cli.cmd_base import SubCommand
from torchx.runner import Runner, get_runner
from torchx.schedulers import canonical_name
from torchx.specs import CfgVal, get_type_name, runopts

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx runopts              options of every scheduler
  torchx runopts --resolved slurm    their current values, and where they come from
  torchx runopts local_cwd    options of one, for `torchx run -s local_cwd -cfg KEY=VALUE`"""


class CmdRunopts(SubCommand):
    """Prints the options for ``-cfg``."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Show the options of the schedulers."
        subparser.epilog = EPILOG
        subparser.add_argument(
            "scheduler",
            type=str,
            nargs="?",
            metavar="SCHEDULER",
            help="only this scheduler (default: all)",
        )
        subparser.add_argument(
            "--resolved",
            action="store_true",
            help="the current values of its options, and where each comes from",
        )
        _arguments.add_cfg(subparser)
        _secrets.add_show_secrets(subparser)
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        if args.resolved and not args.scheduler:
            args.cmd_parser.error("name a scheduler: torchx runopts --resolved SCHEDULER")
        with get_runner() as runner:
            names = runner.scheduler_backends()
            if args.scheduler:
                name = canonical_name(args.scheduler, names)
                _check_known(name, names)
                names = [name]
                problem = _options(runner, name)
                if isinstance(problem, Exception):  # of the requested one
                    raise problem
            if args.resolved:
                args.scheduler = names[0]
                _print_resolved(runner, args)
                return
            if args.json:
                _output.out_json({name: _options_json(runner, name) for name in names})
                return
            for name in names:
                _print_options(runner, name)


def _print_resolved(runner: Runner, args: argparse.Namespace) -> None:
    given: dict[str, CfgVal] = {}
    if args.scheduler_args:
        opts = runner.scheduler_run_opts(args.scheduler)
        given = _arguments.parse_cfg(args.scheduler, opts, args.scheduler_args)
    rows = [
        {"name": row.name, "value": row.value, "origin": row.origin, "where": row.where}
        for row in runner.resolved_run_opts(args.scheduler, given)
    ]
    if not args.show_secrets:
        for row in rows:
            row["value"] = _secrets.mask_data({row["name"]: row["value"]})[row["name"]]
    if args.json:
        _output.out_json({args.scheduler: rows})
        return
    cells = [
        [str(row["name"]), _value_text(row["value"]), f"{row['origin']} {row['where']}".rstrip()]
        for row in rows
    ]
    _output.out_table(["OPTION", "VALUE", "FROM"], cells)


def _value_text(value: object) -> str:
    return "" if value is None else str(value)


def _check_known(scheduler: str, names: list[str]) -> None:
    if scheduler in names:
        return
    _output.fail(
        f"unknown scheduler `{scheduler}`, choose from {', '.join(names)}."
        + did_you_mean(scheduler, names),
        kind="UnknownSchedulerException",
        code=2,
    )


def _print_options(runner: Runner, name: str) -> None:
    on = _output.palette(sys.stdout)
    opts = _options(runner, name)
    if isinstance(opts, Exception):
        _output.out(f"{name}: {opts}\n")
    elif is_terminal(sys.stdout):
        from torchx.cli._catalog_view import options_text

        _output.out(f"{options_text(name, opts)}\n")
    else:
        _output.out(f"{on.green}{name}{on.endc}:\n{opts!r}\n")


def _options_json(runner: Runner, name: str) -> dict[str, object]:
    opts = _options(runner, name)
    if isinstance(opts, Exception):
        return {"error": {"type": type(opts).__name__, "message": str(opts)}}
    described = [
        {
            "name": key,
            "type": get_type_name(opt.opt_type) if opt.opt_type else None,
            "required": opt.is_required,
            "default": opt.default,
            "help": opt.help,
        }
        for key, opt in opts
    ]
    return {"options": described}


def _options(runner: Runner, name: str) -> runopts | Exception:
    """Returns the options, or the error that kept the scheduler from listing them."""
    try:
        return runner.scheduler_run_opts(name)
    except Exception as err:  # noqa: BLE001 - a scheduler that cannot be made must not hide the others
        return err
    except SystemExit as err:
        return RuntimeError(f"it calls `sys.exit({err.code!r})`")
