"""``torchx plugins``: the plugins of installed packages, and their errors."""

import argparse
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output
from torchx.cli._look import Look
from torchx.cli.cmd_base import SubCommand
from torchx.util import entrypoints

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
examples:
  torchx plugins
  torchx plugins --json
  torchx plugins --check        exit code 1 if anything is broken, for use in scripts"""

_MODULE_GROUPS = {"component": "torchx.components", "cli_command": "torchx.cli.cmds"}
"""Kinds of plugins that only entry points can register."""


class CmdPlugins(SubCommand):
    """Lists plugins of every kind; imports each of them to do so."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = (
            "Show the plugins of installed packages: kind, name, module, distribution, and what"
            " could not be loaded. Imports all of them."
        )
        subparser.epilog = EPILOG
        subparser.add_argument(
            "--check", action="store_true", help="exit with 1 if a plugin cannot be loaded"
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        described = _describe()
        errors = described["errors"]
        if args.json:
            _output.out_json(described)
        else:
            _print(described)
        if args.check and errors:
            raise SystemExit(1)


def _describe() -> dict[str, list[dict[str, Any]]]:
    """Returns sections by kind and ``errors``, all of them, so that scripts need no checks."""
    from torchx.plugins import registry

    sections: dict[str, list[dict[str, Any]]] = {}
    errors: list[dict[str, Any]] = []
    for kind, entries in registry().to_dict().items():
        if kind == "errors":
            errors += [_error(None, item) for item in entries]
            continue
        sections[kind] = [_plugin(item) for item in entries if "error" not in item]
        errors += [_error(kind, item) for item in entries if "error" in item]
    for kind, group in _MODULE_GROUPS.items():
        sections[kind] = _entry_points(kind, group, errors)
    return {**sections, "errors": errors}


def _plugin(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": item["name"],
        "module": item["module"],
        "distribution": item.get("distribution"),
        "aliases": item.get("aliases", []),
        "fractionals": item.get("fractionals", []),
    }


def _error(kind: str | None, item: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": item.get("name"),
        "module": item["module"],
        "distribution": item.get("distribution"),
        "error": item["error"],
    }


def _entry_points(kind: str, group: str, errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name, loader in entrypoints.load_group(group).items():
        item = {
            "name": name,
            "module": getattr(loader, "module", None),
            "distribution": getattr(loader, "distribution", None),
        }
        try:
            _load(kind, name, loader)
        except (Exception, SystemExit) as err:  # noqa: BLE001 - a plugin may fail in any way
            errors.append(_error(kind, {**item, "error": f"{type(err).__name__}: {err}"}))
        else:
            found.append(_plugin(item))
    return found


def _load(kind: str, name: str, loader: Any) -> None:
    made = loader()
    if kind == "component":
        from torchx.specs.finder import component_module

        component_module(name, made)
    elif not isinstance(made, SubCommand):
        msg = (
            f"gives a `{type(made).__name__}`, it must be a SubCommand class or a function that"
            " makes one"
        )
        raise TypeError(msg)


def _print(described: dict[str, list[dict[str, Any]]]) -> None:
    rows = [
        [kind, _names(item), item["module"] or "", item["distribution"] or ""]
        for kind, items in described.items()
        if kind != "errors"
        for item in items
    ]
    if rows:
        _output.out_table(["KIND", "NAME", "MODULE", "DISTRIBUTION"], rows)
    else:
        _output.out("no plugins are installed")
    errors = described["errors"]
    if errors:
        _output.out(f"\n{len(errors)} left out:")
    for item in errors:
        what = " ".join(str(part) for part in (item["kind"], item["name"]) if part)
        where = f"{item['module']}" + (
            f" of {item['distribution']}" if item["distribution"] else ""
        )
        text = f"  {what + ': ' if what else ''}{where}: {item['error']}"
        _output.out("\n".join(Look().wrap(text, "    ")))


def _names(item: dict[str, Any]) -> str:
    return ", ".join([item["name"], *item["aliases"], *item["fractionals"]])
