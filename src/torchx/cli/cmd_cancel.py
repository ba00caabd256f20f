"""``torchx cancel``: cancels apps."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output, _selection
from torchx.cli.cmd_base import (
    SubCommand,
    exit_missing_app,
    get_runner,
    missing_app,
    parse_app_handle,
)
from torchx.runner import Runner
from torchx.specs import AppState, is_terminal

if TYPE_CHECKING:
    from torchx.runner._ending import Ended

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
Apps selected by a pattern, a state, an age or `--all` are listed first; a terminal asks for
confirmation, elsewhere `--yes` is needed.

examples:
  torchx cancel local_cwd://torchx/train-x1
  torchx cancel --wait HANDLE               return when the app is gone
  torchx cancel -s slurm 'sweep-*'          all of a sweep, by their names
  torchx cancel --state PENDING --older-than 1d --yes"""


class CmdCancel(SubCommand):
    """Cancels apps; it is not an error if one has ended."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = "Cancel apps. Those that have ended are left unchanged."
        subparser.epilog = EPILOG
        _selection.add_selection(subparser)
        subparser.add_argument(
            "--wait", action="store_true", help="return when the apps have ended"
        )
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        with get_runner() as runner:
            chosen = _selection.choose(args, runner, lambda state: not is_terminal(state))
            if len(chosen.handles) == 1 and not chosen.asked:
                args.app_handle = chosen.handles[0]
                self.run_with_runner(args, runner)
                return
            _selection.confirm(chosen, "cancel", args.yes)
            self._cancel_many(args, runner, chosen.handles)

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        """Cancels the app of ``args.app_handle``."""
        handle = args.app_handle
        before, unknown = state_of(runner, handle)
        runner.cancel(handle)
        if unknown:
            exit_missing_app(handle)
        if args.wait:
            runner.wait(handle, wait_interval=1)
        after, _ = state_of(runner, handle)
        app_id = parse_app_handle(handle).app_id
        shown: dict[str, object] = {"calm_text": f"{app_id} is being cancelled"}
        if before is not None and is_terminal(before):
            shown = {"app_state": before, "app_text": f"{app_id} had ended before: {before}"}
            _output.log().info("app `%s` had ended before: %s", handle, before, extra=shown)
        elif after is not None and is_terminal(after):
            shown = {"app_state": after, "app_text": f"{app_id} {after}"}
            _output.log().info("app `%s` is %s", handle, after, extra=shown)
        else:
            _output.log().info("app `%s` is being cancelled", handle, extra=shown)
        if args.json:
            _output.out_json(outcome_json(handle, after))

    def _cancel_many(self, args: argparse.Namespace, runner: Runner, handles: list[str]) -> None:
        ended = runner.cancel_many(handles)
        acted = [one.app_handle for one in ended if one.acted]
        after: dict[str, AppState | None] = {}
        for handle in acted if args.wait else ():
            status = runner.wait(handle, wait_interval=1)
            after[handle] = None if status is None else status.state
        _output.log().info(
            "%s %s", _selection.count(acted), "cancelled" if args.wait else "being cancelled"
        )
        report_rest(ended, "had ended before", args.json, after)


def report_rest(
    ended: "Sequence[Ended]",
    ended_before: str,
    as_json: bool,
    after: Mapping[str, AppState | None],
) -> None:
    """Reports the apps that were not changed, and why; ends the command if there were errors."""
    for one in ended:
        if one.error is not None:
            _output.log().error("`%s`: %s", one.app_handle, one.error)
        elif one.before is None:
            scheduler, _, app_id = parse_app_handle(one.app_handle)
            _output.log().error("%s", missing_app(scheduler, app_id)[0])
        elif not one.acted:
            _output.log().info("app `%s` %s: %s", one.app_handle, ended_before, one.before)
    if as_json:
        _output.out_json(
            [
                {
                    **outcome_json(one.app_handle, after.get(one.app_handle, one.before)),
                    "acted": one.acted,
                    "error": None if one.error is None else str(one.error),
                }
                for one in ended
            ]
        )
    if any(one.error is not None or one.before is None for one in ended):
        raise SystemExit(1)


def state_of(runner: Runner, handle: str) -> tuple[AppState | None, bool]:
    """Returns the app's state, ``None`` if unavailable, and whether the scheduler lacks the app."""
    try:
        status = runner.status(handle)
    except Exception as err:  # noqa: BLE001 - the report is extra, the command itself reports errors
        _output.log().debug("no status of `%s`: %s", handle, err)
        return None, False
    return (None, True) if status is None else (status.state, False)


def outcome_json(handle: str, state: AppState | None) -> dict[str, object]:
    """Returns the JSON output of cancel and delete."""
    scheduler, _, app_id = parse_app_handle(handle)
    return {
        "handle": handle,
        "app_id": app_id,
        "scheduler": scheduler,
        "state": None if state is None else state.name,
    }
