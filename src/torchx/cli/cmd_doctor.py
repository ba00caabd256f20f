"""``torchx doctor``: checks what each scheduler needs, and how to fix what is missing."""

import argparse
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torchx._home import home_dir
from torchx._words import did_you_mean
from torchx.cli import _arguments, _output
from torchx.cli._look import Look
from torchx.cli.cmd_base import SubCommand
from torchx.errors import NotInstalled, TorchXError
from torchx.runner import Runner, config, get_runner
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.checkups import (
    Checkup,
    Finding,
    Verdict,
    broken,
    folder_finding,
    neutral,
    ok,
)
from torchx.schedulers.checkups import warning as warn
from torchx.specs import CfgVal

if TYPE_CHECKING:
    from collections.abc import Sequence

EPILOG = """\
`broken` keeps jobs from running, and the exit code is 1; `neutral` is not set up. With -s, a
scheduler that is not set up is broken.

examples:
  torchx doctor
  torchx doctor -s slurm
  torchx doctor --json"""

TIMEOUT_S = 9.0
"""After which the command ends, whatever has answered by then: ten with its start and its end."""
_OURS = "torchx"

Row = tuple[str, str, Finding]
"""Scheduler, check and finding."""


class CmdDoctor(SubCommand):
    """Checks all schedulers at once."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Check what each scheduler needs, and how to fix what is missing."
        subparser.epilog = EPILOG
        subparser.add_argument(
            "-s",
            "--schedulers",
            type=str,
            default="",
            metavar="NAME[,...]",
            help="only these schedulers (default: all)",
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        given = [name.strip() for name in args.schedulers.split(",") if name.strip()]
        chosen = [_arguments.check_scheduler(name) for name in given]
        with get_runner(component_defaults=_component_defaults()) as runner:
            names = chosen or runner.scheduler_backends()
            rows = [*_examined(runner, names)]
        rows = [_wanted(row) if chosen else row for row in rows]
        options = _option_lines(rows)
        if args.json:
            _output.out_json(_to_json(rows, options))
        else:
            _output.out(_text(rows, options))
        if any(finding.verdict is Verdict.BROKEN for _, _, finding in rows):
            raise SystemExit(1)


def _wanted(row: Row) -> Row:
    """Turns "not set up" into an error for a scheduler requested by name."""
    name, check, finding = row
    if finding.verdict is Verdict.NEUTRAL and finding.text.startswith("not set up"):
        return name, check, broken(finding.text, finding.fix)
    return row


# -- examining -----------------------------------------------------------------------------------


def _examined(runner: Runner, names: "Sequence[str]") -> Iterator[Row]:
    """Yields all findings, in the order of the schedulers; each check runs in its own thread."""
    deadline = time.monotonic() + TIMEOUT_S
    groups = [(_OURS, _Task(lambda: _started(_own_checkups())))]
    groups += [
        (name, _Task(lambda name=name: _started(_checkups(runner, name))))  # type: ignore[misc]  # mypy does not infer lambdas with defaults
        for name in names
    ]
    for name, group in groups:
        tasks = group.result(deadline)
        if isinstance(tasks, Finding):  # it could not even be made
            yield name, "setup", tasks
            continue
        for check, task in tasks:
            found = task.result(deadline)
            yield name, check, found if isinstance(found, Finding) else neutral("no answer")


def _checkups(runner: Runner, name: str) -> "Sequence[Checkup]":
    cfg: dict[str, CfgVal] = {}
    config.apply(scheduler=name, cfg=cfg)
    return runner.checkups(name, cfg)


def _started(checks: "Sequence[Checkup]") -> "_Tasks":
    """All checks of a scheduler, which run from now on, whatever others do."""
    return [(check.name, _Task(check.check)) for check in checks]


def _component_defaults() -> dict[str, dict[str, str]]:
    try:
        return config.load_sections(prefix="component")
    except TorchXError:  # the check of the files tells why
        return {}


class _Task:
    """A call in its own thread, awaited no longer than a deadline."""

    def __init__(self, call: "Callable[[], _Result]") -> None:
        self._results: queue.Queue[_Result] = queue.Queue()
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: "Callable[[], _Result]") -> None:
        try:
            self._results.put(call())
        except NotInstalled as err:
            self._results.put(neutral(f"not set up: {err}"))
        except TorchXError as err:
            self._results.put(broken(str(err).partition("\n")[0], ""))
        except Exception as err:  # noqa: BLE001 - a plugin may fail in any way, the others go on
            words = f"{type(err).__name__}: {err}".partition("\n")[0]
            self._results.put(broken(f"the check failed: {words}", ""))

    def result(self, deadline: float) -> "_Result":
        """Returns the result of the call, or a finding that it timed out."""
        try:
            return self._results.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            return broken(f"no answer within {TIMEOUT_S:g} s", "Check the network")


_Tasks = list[tuple[str, _Task]]
_Result = Finding | _Tasks


def _own_checkups() -> list[Checkup]:
    return [Checkup("home", _home), Checkup("config", _config)]


def _home() -> Finding:
    return folder_finding(home_dir(), "records in")


def _config() -> Finding:
    """Checks that the config files can be read, and have no unknown sections."""
    files = config.find_configs()
    if not files:
        return neutral("no .torchxconfig", "torchx configure")
    config.load_sections(prefix="component")  # raises for what cannot be read
    known = [*get_scheduler_factories(), "cli", "component", "torchx", "tracker"]
    for path in files:
        for name in _sections(path):
            word = name.partition(":")[0]
            if word not in known:
                text = f"nothing reads section [{name}] of {path}.{did_you_mean(word, known)}"
                return warn(text, "torchx runopts")
    return ok(", ".join(os.path.abspath(path) for path in files))


def _sections(path: str) -> list[str]:
    import re

    with open(path, encoding="utf-8", errors="replace") as file:
        return re.findall(r"^\[([^\]]+)\]", file.read(), re.MULTILINE)


# -- showing -------------------------------------------------------------------------------------

_SIGNS = {
    Verdict.OK: ("fine", "green"),
    Verdict.WARNING: ("warn", "yellow"),
    Verdict.BROKEN: ("bad", "red"),
    Verdict.NEUTRAL: ("wait", "gray"),
}


def _text(rows: list[Row], options: list[str]) -> str:
    look = Look()
    width = max(len(check) for _, check, _ in rows)
    lines: list[str] = []
    last = ""
    for name, check, finding in rows:
        if name != last:
            lines += ([""] if lines else []) + [look.bold(name)]
            last = name
        sign, color = _SIGNS[finding.verdict]
        head = f"  {look.paint(look.sign(sign), color)} {check.ljust(width)}  "
        text = finding.text if finding.verdict is not Verdict.NEUTRAL else look.dim(finding.text)
        if not look.terminal:
            head = f"  {finding.verdict.value.ljust(7)} {check.ljust(width)}  "
        lines += _hanging(look, head, text, width + 6)
        if finding.fix and finding.verdict is not Verdict.OK:
            indent = 4 if _is_narrow(look, width + 6) else width + 6
            lines += look.hint(finding.fix, " " * indent)
    if options:
        lines += ["", look.dim("# for .torchxconfig"), *options]
    return "\n".join(lines)


def _hanging(look: Look, head: str, text: str, indent: int) -> list[str]:
    """Wraps the text after the head, with a hanging indent."""
    if _is_narrow(look, indent):
        return [head.rstrip(), *look.wrap(f"    {text}", "    ")]
    first, *rest = look.wrap(f"{' ' * indent}{text}", " " * indent)
    return [head + first.lstrip(), *rest]


def _is_narrow(look: Look, indent: int) -> bool:
    """Returns True if a column after that indent is too narrow for text."""
    return look.width < 2 * indent


def _option_lines(rows: list[Row]) -> list[str]:
    """Returns options that were found to work, as lines of a config file."""
    lines: list[str] = []
    found: dict[str, dict[str, str]] = {}
    for name, _, finding in rows:
        found.setdefault(name, {}).update(finding.options)
    for name, options in found.items():
        if options:
            lines += [f"[{name}]", *(f"{key} = {value}" for key, value in options.items())]
    return lines


def _to_json(rows: list[Row], options: list[str]) -> dict[str, object]:
    return {
        "checks": [
            {
                "scheduler": None if name == _OURS else name,
                "check": check,
                "verdict": finding.verdict.value,
                "text": finding.text,
                "fix": finding.fix or None,
                "options": dict(finding.options),
            }
            for name, check, finding in rows
        ],
        "config": options,
    }
