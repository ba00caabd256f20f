"""Base classes of sub-commands; plugins subclass them."""

import abc
import argparse
from typing import NoReturn

from torchx._startup.lazy_logger import get_logger
from torchx.cli import _output
from torchx.runner import Runner, get_runner
from torchx.specs import NONE, AppState, AppStatus, parse_app_handle

logger = get_logger(__name__)  # clients replace it

__all__ = ["AppHandleSubCommand", "SubCommand", "get_runner", "parse_app_handle"]


class SubCommand(abc.ABC):
    """A command of ``torchx``. Registered under the entry-point group ``torchx.cli.cmds``."""

    @abc.abstractmethod
    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Adds the command's arguments to its parser."""

    @abc.abstractmethod
    def run(self, args: argparse.Namespace) -> None:
        """Runs the command."""


def help_of_handle(last_app: bool) -> str:
    """Returns the help text of a handle that may be shortened."""
    text = "the app: SCHEDULER://SESSION/APP_ID, its app id, or an unambiguous prefix of that"
    return f"{text} (default: the app that was launched last)" if last_app else text


class AppHandleSubCommand(SubCommand):
    """A command about one app, with a runner that is closed afterwards.

    The app may also be given by its app id or a prefix of that: ``args.app_handle`` is always the
    whole handle.
    """

    last_app = False
    """If True, the handle defaults to the app that was launched last."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.add_argument(
            "app_handle",
            type=str,
            nargs="?" if self.last_app else None,
            metavar="APP_HANDLE",
            help=help_of_handle(self.last_app),
        )

    def run(self, args: argparse.Namespace) -> None:
        from torchx.cli._handles import resolve

        args.app_handle = resolve(args.app_handle)
        with get_runner() as runner:
            self.run_with_runner(args, runner)

    @abc.abstractmethod
    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        """Runs the command; the runner is closed afterwards."""

    def exit_missing_app(self, app_handle: str) -> NoReturn:
        """Ends the command: the scheduler does not know the app."""
        exit_missing_app(app_handle)


def exit_missing_app(app_handle: str) -> NoReturn:
    """Ends the command: the scheduler does not know the app."""
    scheduler, _, app_id = parse_app_handle(app_handle)
    message, hint = missing_app(scheduler, app_id)
    _output.fail(message, kind="UnknownAppException", hint=hint)


def missing_app(scheduler: str, app_id: str) -> tuple[str, str]:
    """Returns the message, and a hint, for an app that the scheduler does not know."""
    return (
        f"app `{app_id}` does not exist on scheduler `{scheduler}`, or has been purged from it",
        f"`torchx list -s {scheduler}` shows the apps it knows",
    )


def report_failure(status: AppStatus) -> None:
    """Writes to stderr why the app failed: its first exception, if known."""
    if status.state is AppState.FAILED and status.msg not in ("", NONE):
        _output.log().error("%s", status.msg)
