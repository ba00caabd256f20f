"""Completes words of the command line; shells call this through the code of ``torchx completion``.

No component is imported to complete its name: files are searched for functions annotated to return
an `AppDef`. Only the component whose arguments are completed is imported.
"""

import argparse
import os
import shlex
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from torchx._component_names import components_in
from torchx.cli import _help

if TYPE_CHECKING:
    from torchx.cli.cmd_base import SubCommand

_BUILTINS = "torchx.components"
_MOST_HANDLES = 100
"""Most handles offered; a longer prefix finds the others."""


def complete(subcmds: "dict[str, SubCommand]") -> None:
    """Writes the completions to the file descriptor that the shell reads, and ends the process."""
    from argcomplete import autocomplete
    from argcomplete.lexers import split_line

    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    prequote, prefix, _, words, _ = split_line(line, point)
    words = words[int(os.environ["_ARGCOMPLETE"]) - 1 :]
    parser = _root(subcmds, words)
    inside = _component_line(parser, words, prequote + prefix)
    if inside is not None:
        name, line = inside
        os.environ.update(COMP_LINE=line, COMP_POINT=str(len(line)), _ARGCOMPLETE="1")
        component = _component_parser(name)
        if component is None:
            raise SystemExit(0)
        parser = component
    autocomplete(parser, always_complete_options=False)


def _root(subcmds: "dict[str, SubCommand]", words: list[str]) -> argparse.ArgumentParser:
    """Returns a parser with all commands, and the arguments of the one on the line."""
    from torchx.cli._output import COLOR_MODES

    parser = argparse.ArgumentParser(prog="torchx")
    parser.add_argument("--log_level", choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
    parser.add_argument("--color", choices=COLOR_MODES)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-V", "--version", action="store_true")
    commands = parser.add_subparsers()
    names = {**{name: name for name in subcmds}, **_short_names(subcmds)}
    used = next((word for word in words[1:] if word in names), None)
    for name, command in names.items():
        child = commands.add_parser(name, help=_help.purpose(command))
        if name == used:
            subcmds[command].add_arguments(child)
            _add_completers(child)
    return parser


def _short_names(subcmds: "dict[str, SubCommand]") -> dict[str, str]:
    from torchx.cli._parser import SHORT_NAMES

    return {short: name for short, name in SHORT_NAMES.items() if short not in subcmds}


def _add_completers(parser: argparse.ArgumentParser) -> None:
    """Attaches completers to options, by the name of the value in the help text."""
    for action in parser._actions:  # argparse has no public list of options
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _add_completers(child)
            continue
        known = _COMPLETERS.get(str(action.metavar)) or _COMPLETERS.get(action.dest)
        if known is not None and not action.choices:
            action.completer = known  # type: ignore[attr-defined]  # where argcomplete looks


def _component_line(
    root: argparse.ArgumentParser, words: list[str], current: str
) -> tuple[str, str] | None:
    """Returns the component of ``run`` and the line from there on; ``None`` if not given yet."""
    if "run" not in words[1:]:
        return None
    run: Any = next(
        action.choices["run"]
        for action in root._actions
        if isinstance(action, argparse._SubParsersAction) and action.choices
    )
    at = words.index("run") + 1
    while at < len(words):
        word = words[at]
        if not word.startswith("-"):
            rest = " ".join(shlex.quote(w) for w in words[at:])
            return word, f"{rest} {current}"
        flag, equals, _ = word.partition("=")
        action = run._option_string_actions.get(flag)
        takes_value = action is not None and action.nargs is None and not equals
        at += 2 if takes_value else 1
    return None


def _component_parser(name: str) -> argparse.ArgumentParser | None:
    from torchx.specs.builders import _create_args_parser
    from torchx.specs.finder import get_component

    try:
        return _create_args_parser(get_component(name).fn)
    except Exception:  # noqa: BLE001 - a component file may fail in any way; there is nothing to offer
        return None


def _components(prefix: str, **_: object) -> Iterable[str]:
    """Yields names of components, or of files and the components in them."""
    path, colon, _name = prefix.partition(":")
    if colon:
        return [f"{path}:{name}" for name in components_in(os.path.expanduser(path))]
    if "/" in prefix or prefix.startswith("~"):
        return _component_files(prefix)
    return [*_registered(), *_component_files(prefix)]


def _component_files(prefix: str) -> Iterator[str]:
    folder, _, start = prefix.rpartition("/")
    shown = f"{folder}/" if folder or prefix.startswith("/") else ""
    try:
        with os.scandir(os.path.expanduser(shown) or ".") as entries:
            for entry in entries:
                if entry.name.startswith(".") or not entry.name.startswith(start):
                    continue
                if entry.is_dir():
                    yield f"{shown}{entry.name}/"
                elif entry.name.endswith(".py") and components_in(entry.path):
                    yield f"{shown}{entry.name}:"
    except OSError:
        return


def _registered() -> Iterator[str]:
    from torchx.util.entrypoints import load_group

    names = dict.fromkeys(_below(_BUILTINS))
    for key, loader in load_group("torchx.components").items():
        module = getattr(loader, "module", None)
        for name in _below(module) if module else ():
            names[name if key.startswith("_") else f"{key}.{name}"] = None
    yield from names


def _below(package: str) -> Iterator[str]:
    """Yields names of components in a module and its submodules, relative to it."""
    from importlib.util import find_spec

    try:
        spec = find_spec(package)
    except Exception:  # noqa: BLE001 - the package around it may fail in any way
        return
    if spec is None or spec.origin is None:
        return
    yield from components_in(spec.origin)
    for folder in spec.submodule_search_locations or ():
        yield from _in_folder(folder, "")


def _in_folder(folder: str, prefix: str) -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.name.endswith(".py") and entry.name != "__init__.py":
            for name in components_in(entry.path):
                yield f"{prefix}{entry.name[:-3]}.{name}"
        elif entry.is_dir() and os.path.isfile(f"{entry.path}/__init__.py"):
            for name in components_in(f"{entry.path}/__init__.py"):
                yield f"{prefix}{entry.name}.{name}"
            yield from _in_folder(entry.path, f"{prefix}{entry.name}.")


def _schedulers(prefix: str, **_: object) -> Iterable[str]:
    from torchx.schedulers import get_scheduler_factories

    head, comma, _last = prefix.rpartition(",")
    return [f"{head}{comma}{name}" for name in get_scheduler_factories()]


def _chosen_scheduler(words: list[str]) -> str:
    """Returns the scheduler on the line; argcomplete does not run the action of ``-s``."""
    from torchx.cli._arguments import DEFAULT_SCHEDULER

    chosen = DEFAULT_SCHEDULER
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag in ("-s", "--scheduler"):
            chosen = value if equals else following
        elif word.startswith("-s") and word[2:3].isalnum():
            chosen = word[2:]
    return chosen


def _options(prefix: str, **_: object) -> Iterable[str]:
    """Yields the ``-cfg`` keys of the chosen scheduler."""
    from torchx.runner import get_runner

    head, comma, _last = prefix.rpartition(",")
    try:
        scheduler = _chosen_scheduler(shlex.split(os.environ["COMP_LINE"]))
        with get_runner() as runner:
            return [f"{head}{comma}{key}=" for key, _opt in runner.scheduler_run_opts(scheduler)]
    except Exception:  # noqa: BLE001 - an open quote, or a scheduler that cannot be made
        return []


def _states(prefix: str, **_: object) -> Iterable[str]:
    from torchx.specs import AppState

    head, comma, _last = prefix.rpartition(",")
    return [f"{head}{comma}{state.name}" for state in AppState]


def _handles(prefix: str, **_: object) -> Iterable[str]:
    """Yields handles of recent apps with this prefix; app ids if the prefix has no ``://``."""
    names = _known_handles()
    if "://" not in prefix and not prefix.endswith(":"):
        names = (handle.rpartition("/")[2] for handle in names)
    return islice((n for n in dict.fromkeys(names) if n.startswith(prefix)), _MOST_HANDLES)


def _known_handles() -> Iterator[str]:
    """Yields the apps that were launched from here, and all local ones, latest first."""
    from torchx._launches import launches
    from torchx.runner.api import DEFAULT_SESSION_NAME
    from torchx.schedulers.local_scheduler._store import Store

    yield from (launch.handle for launch in launches())
    store = Store()
    start = f"local_cwd://{DEFAULT_SESSION_NAME}/"
    yield from (start + app_id for app_id in chain(store.active(), store.finished_ids()))


_COMPLETERS = {
    "APP_HANDLE": _handles,
    "IDENTIFIER": _handles,
    "RUN_ID": _handles,
    "COMPONENT": _components,
    "COMPONENT [ARGS]": _components,
    "SCHEDULER": _schedulers,
    "NAME[,...]": _schedulers,
    "STATE[,...]": _states,
    "scheduler_args": _options,
}
"""By the value's name in the help text, or the name of the argument."""
