"""``torchx delete``: removes apps from their schedulers."""

import argparse

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _arguments, _output, _selection
from torchx.cli.cmd_base import SubCommand, exit_missing_app, get_runner, parse_app_handle
from torchx.cli.cmd_cancel import outcome_json, report_rest, state_of
from torchx.runner import Runner

logger = get_logger(__name__)  # clients replace it

EPILOG = """\
Apps selected by a pattern, a state, an age or `--all` are listed first; a terminal asks for
confirmation, elsewhere `--yes` is needed.

examples:
  torchx delete local_cwd://torchx/train-x1
  torchx delete 'sweep-*'                        all of a sweep, by their names
  torchx delete --state SUCCEEDED,FAILED --older-than 7d --yes"""


class CmdDelete(SubCommand):
    """Deletes apps."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.description = (
            "Delete apps from their scheduler; running ones are cancelled first."
            " Schedulers that keep no definitions only cancel."
        )
        subparser.epilog = EPILOG
        _selection.add_selection(subparser)
        _arguments.add_json(subparser)

    def run(self, args: argparse.Namespace) -> None:
        with get_runner() as runner:
            chosen = _selection.choose(args, runner, lambda _: True)
            if len(chosen.handles) == 1 and not chosen.asked:
                args.app_handle = chosen.handles[0]
                self.run_with_runner(args, runner)
                return
            _selection.confirm(chosen, "delete", args.yes)
            ended = runner.delete_many(chosen.handles)
            acted = [one.app_handle for one in ended if one.acted]
            _output.log().info("%s deleted", _selection.count(acted))
            report_rest(ended, "stays", args.json, {})

    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        """Deletes the app of ``args.app_handle``."""
        handle = args.app_handle
        _, unknown = state_of(runner, handle)
        runner.delete(handle)
        if unknown:
            exit_missing_app(handle)
        after, _ = state_of(runner, handle)
        if after is None:
            shown = {"calm_text": f"{parse_app_handle(handle).app_id} is deleted"}
            _output.log().info("app `%s` is deleted", handle, extra=shown)
        else:
            _output.log().info("app `%s` is being deleted, it is %s", handle, after)
        if args.json:
            _output.out_json(outcome_json(handle, after))
