"""The output of ``torchx run --dryrun -s a,b,c``: what each scheduler would do with the app."""

import argparse

from torchx.cli import _arguments, _output
from torchx.cli._component_line import component_errors
from torchx.cli._run_args import TorchXRunArgs
from torchx.runner import Runner, config
from torchx.schedulers._core.portability import CHANGED, DROPPED, REFUSED, Finding, as_data
from torchx.specs import CfgVal

_WORDS = {REFUSED: "refuses", DROPPED: "drops", CHANGED: "changes"}


def compare(runner: Runner, run_args: TorchXRunArgs, args: argparse.Namespace) -> None:
    """Prints what each scheduler would refuse, drop or change; with `--strict` a drop fails."""
    with component_errors(run_args):
        app = runner.component_app(
            run_args.component_name, run_args.component_args_str or run_args.component_args
        )
    found = {
        name: [*runner.portability(app, name, _cfg_of(runner, name, args))]
        for name in dict.fromkeys(run_args.scheduler.split(","))
    }
    if args.json:
        _output.out_json({name: as_data(findings) for name, findings in found.items()})
    else:
        _output.out("\n".join(line for name, fs in found.items() for line in _lines(name, fs)))
    bad = {REFUSED, DROPPED} if run_args.strict else set()
    if any(finding.kind in bad for findings in found.values() for finding in findings):
        raise SystemExit(1)


def _cfg_of(runner: Runner, scheduler: str, args: argparse.Namespace) -> dict[str, CfgVal]:
    """Returns the options from ``-cfg`` that this scheduler has, and those of config files."""
    opts = runner.scheduler_run_opts(scheduler)
    cfg: dict[str, CfgVal] = {}
    if args.scheduler_args:
        given = _arguments.parse_cfg(scheduler, opts, args.scheduler_args)
        cfg = {name: value for name, value in given.items() if opts.canonical_key(name)}
    config.apply(scheduler=scheduler, cfg=cfg)
    return cfg


def _lines(scheduler: str, findings: list[Finding]) -> list[str]:
    if not findings:
        return [f"{scheduler}: takes all of it"]
    kinds = dict.fromkeys(finding.kind for finding in findings)
    head = f"{scheduler}: {' and '.join(_WORDS[kind] for kind in kinds)} something"
    return [head, *(f"  {finding.kind:<7}  {finding}" for finding in findings)]
