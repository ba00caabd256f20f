"""``torchx run --stdin``: a run that is described by a JSON object in place of arguments."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from torchx.cli import _output
from torchx.cli._component_line import component_errors
from torchx.cli._run_args import TorchXRunArgs, check_component_args, torchx_run_args_from_json
from torchx.runner import Runner
from torchx.specs.finder import get_component

# flags that go together with --stdin
_BESIDE_STDIN = ("stdin", "dryrun", "json", "show_secrets", "log_level", "help")


def read_json() -> dict[str, Any]:
    """The JSON object on stdin; ends the command when it is something else."""
    try:
        data = json.load(sys.stdin)
    except ValueError as err:
        msg = f"stdin does not hold valid JSON: {err}"
        _output.fail(msg, kind="InvalidInput", code=2)
    if not isinstance(data, dict):
        _output.fail(
            f"stdin must hold a JSON object, it holds a {type(data).__name__}",
            kind="InvalidInput",
            code=2,
        )
    return data


def refuse_flags(
    parser: argparse.ArgumentParser, actions: Sequence[argparse.Action], args: argparse.Namespace
) -> None:
    """Refuses flags beside ``--stdin`` that duplicate the JSON."""
    extra = [
        next(name for name in action.option_strings if name.startswith("--"))
        for action in actions
        if action.dest not in _BESIDE_STDIN
        and getattr(args, action.dest) != parser.get_default(action.dest)
    ]
    if args.component_name_and_args:
        extra.append("COMPONENT [ARGS]")
    if extra:
        names = ", ".join(extra)
        parser.error(f"with --stdin the configuration must come from JSON, leave out: {names}")


def run_args(runner: Runner, data: dict[str, Any]) -> TorchXRunArgs:
    """What is to be run, checked against the options of the scheduler and the component."""
    found = torchx_run_args_from_json(data)
    opts = runner.scheduler_run_opts(found.scheduler)
    found.scheduler_cfg = {
        **found.scheduler_cfg,
        **opts.cfg_from_json_repr(json.dumps(found.scheduler_args)),
    }
    if found.component_args and not found.component_args_str:
        with component_errors(found):
            component = get_component(found.component_name)
        check_component_args(component.fn, found.component_name, found.component_args)
    return found
