"""``torchx why``: why an app waits, failed or was lost, and what to do about it."""

import argparse
from typing import TYPE_CHECKING

from torchx.cli import _arguments, _output
from torchx.cli._explained import app_name, backend_away, hints, to_json
from torchx.cli._look import Look
from torchx.cli.cmd_base import AppHandleSubCommand
from torchx.errors import BackendUnavailable
from torchx.runner import Runner

if TYPE_CHECKING:
    from torchx.schedulers.causes import Explanation

EPILOG = """\
The first word is one of a fixed list of causes, the same on all schedulers: image-pull,
unschedulable, quota, queue-limit, dependency, held, bad-option, access-denied, mount,
out-of-memory, disk-full, time-limit, preempted, node-lost, app-error, killed, launch-failed,
backend-away, ...
It is `unknown` if the evidence is not conclusive.

examples:
  torchx why                   the app that was launched last
  torchx why train-x1
  torchx why --json HANDLE"""


_LEAST = 20
"""Columns of the evidence, however narrow the terminal is."""


class CmdWhy(AppHandleSubCommand):
    """Prints the cause, its evidence, and what to do."""

    last_app = True

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Explain why an app waits, is slow to start, failed or was lost."
        subparser.epilog = EPILOG
        super().add_arguments(subparser)
        _arguments.add_json(subparser)

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        try:
            found = runner.explain(args.app_handle)
        except BackendUnavailable as err:
            found = backend_away(args.app_handle, err)
        if found is None:
            self.exit_missing_app(args.app_handle)
        if args.json:
            _output.out_json(to_json(args.app_handle, found))
        else:
            _output.out(_text(args.app_handle, found))


def _text(handle: str, found: "Explanation") -> str:
    look = Look()
    mark = f"{look.mark(found.state)} " if look.terminal else ""
    lines = look.wrap(f"{mark}{app_name(handle)} {look.state(found.state)}")
    lines += look.wrap(f"  {look.bold(found.cause.value)}: {found.summary}", "  ")
    width = max((len(evidence.source) for evidence in found.evidence), default=0)
    last = ""
    for evidence in found.evidence:
        for line in evidence.text.splitlines() or [""]:
            source = evidence.source if evidence.source != last or not look.terminal else ""
            last = evidence.source
            for part in look.wrap(line, "  ", max(look.width - width - 4, _LEAST)):
                lines.append(f"  {look.dim(source.ljust(width))}  {part}")
                source = source if not look.terminal else ""
    return "\n".join([*lines, *hints(look, handle, found)])
