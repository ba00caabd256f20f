"""Splits the component from the command line of ``torchx run``, and reports its errors."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from torchx.cli import _output
from torchx.cli._run_args import TorchXRunArgs, component_start
from torchx.cli.argparse_util import torchxconfig_run
from torchx.errors import (
    ComponentNotFoundException,
    ComponentValidationException,
    InvalidRunConfigException,
)


def parse_component_apart(
    subparser: argparse.ArgumentParser, actions: list[argparse.Action]
) -> None:
    """Makes the parser leave the component and everything after it unparsed."""
    flags = {name: action.nargs != 0 for action in actions for name in action.option_strings}
    flags.update({"-h": False, "--help": False})
    parse_flags = subparser.parse_known_args

    def parse_known_args(
        args: "list[str] | None" = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        tokens = list(sys.argv[1:] if args is None else args)
        start = component_start(tokens, flags, _default_component)
        parsed, extras = parse_flags(tokens[:start], namespace)
        parsed.component_name_and_args = tokens[start:]
        return parsed, extras

    subparser.parse_known_args = parse_known_args  # type: ignore[method-assign,assignment]  # argparse itself would read the component's options


def _default_component() -> str | None:
    return torchxconfig_run.section("run").get("component")


@contextmanager
def component_errors(run_args: TorchXRunArgs) -> Iterator[None]:
    """Ends the command on errors of the component or the scheduler's options."""
    name = run_args.component_name
    try:
        yield
    except (ComponentNotFoundException, ComponentValidationException) as err:
        _component_failure(name, err)
    except FileNotFoundError as err:
        path, colon, _ = name.rpartition(":")
        if not colon or os.path.exists(path):
            raise
        _component_failure(name, err)
    except InvalidRunConfigException as err:
        hint = (
            "give options of the scheduler with `-cfg key=value[,key=value]`, or in section"
            f" [{run_args.scheduler}] of `.torchxconfig`;"
            f" `torchx runopts {run_args.scheduler}` shows them"
        )
        _output.fail(str(err), kind=type(err).__name__, hint=hint, code=2)


def _component_failure(name: str, err: Exception) -> NoReturn:
    _output.log().debug("traceback", exc_info=err)
    text = str(err)
    message = text if name in text else f"component `{name}`: {text}"
    code = 1 if isinstance(err, ComponentValidationException) else 2
    _output.fail(message, kind=type(err).__name__, code=code)
