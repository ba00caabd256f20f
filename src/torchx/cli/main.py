"""The command line's entry point: a table of commands, and one place for exit codes.

Only the command that runs is imported, and ``--version`` is answered before any import.
Exit codes: 0 fine, 1 torchx or the app failed, 2 usage, 130 Ctrl-C, 143 terminated.
"""

import os
import sys

from torchx.version import __version__

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, ItemsView, Iterator, ValuesView
    from typing import Any, NoReturn

    from torchx.cli.cmd_base import SubCommand

GROUP = "torchx.cli.cmds"
_INTERRUPTED = 130
_SIGINT = 2
_CALLBACK_S = 0.01  # seconds until the callback that swallowed an interruption has ended

# in the order of help; `_help` has their descriptions
COMMANDS: dict[str, str] = {
    "builtins": "torchx.cli.cmd_builtins:CmdBuiltins",
    "cancel": "torchx.cli.cmd_cancel:CmdCancel",
    "completion": "torchx.cli.cmd_completion:CmdCompletion",
    "configure": "torchx.cli.cmd_configure:CmdConfigure",
    "delete": "torchx.cli.cmd_delete:CmdDelete",
    "describe": "torchx.cli.cmd_describe:CmdDescribe",
    "doctor": "torchx.cli.cmd_doctor:CmdDoctor",
    "exec": "torchx.cli.cmd_exec:CmdExec",
    "list": "torchx.cli.cmd_list:CmdList",
    "log": "torchx.cli.cmd_log:CmdLog",
    "plugins": "torchx.cli.cmd_plugins:CmdPlugins",
    "port-forward": "torchx.cli.cmd_port_forward:CmdPortForward",
    "prune": "torchx.cli.cmd_prune:CmdPrune",
    "rerun": "torchx.cli.cmd_rerun:CmdRerun",
    "run": "torchx.cli.cmd_run:CmdRun",
    "runopts": "torchx.cli.cmd_runopts:CmdRunopts",
    "shell": "torchx.cli.cmd_shell:CmdShell",
    "status": "torchx.cli.cmd_status:CmdStatus",
    "tracker": "torchx.cli.cmd_tracker:CmdTracker",
    "why": "torchx.cli.cmd_why:CmdWhy",
}


def __getattr__(
    name: str,
) -> "Any":  # clients import the commands from here
    for target in COMMANDS.values():
        if target.endswith(f":{name}"):
            from importlib import import_module

            return getattr(import_module(target.partition(":")[0]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


class _SubCommands(dict[str, "Any"]):  # values: a loader, replaced by its SubCommand on access
    """Sub-commands by name; each is imported on access, and a broken one breaks no other."""

    def __getitem__(self, name: str) -> "SubCommand":
        value = super().__getitem__(name)
        if isinstance(value, _Loader):
            value = value.load(name)
            self[name] = value
        return value  # type: ignore[no-any-return]  # a loader has been replaced by now

    def __iter__(self) -> "Iterator[str]":  # makes `dict(...)` and `{**...}` read through us
        return super().__iter__()

    def get(self, name: str, default: "Any" = None) -> "Any":
        return self[name] if name in self else default  # noqa: SIM401 - `dict.get` is this method

    # dict declares view types of its own that cannot be named
    def values(self) -> "ValuesView[SubCommand]":  # type: ignore[override]  # see above
        return self._loaded().values()

    def items(self) -> "ItemsView[str, SubCommand]":  # type: ignore[override]  # see above
        return self._loaded().items()

    def _loaded(self) -> dict[str, "SubCommand"]:
        """Returns every command that can be loaded; others are named in a warning."""
        return {name: self[name] for name in self if self._loads(name)}

    def any_foreign(self) -> bool:
        """Returns True if commands of plugins are still to be loaded."""
        return any(self._foreign(name) for name in self)

    def usable(self) -> list[str]:
        """Returns names for help. Loads the commands of plugins, and warns of broken ones."""
        return [name for name in self if not self._foreign(name) or self._loads(name)]

    def _foreign(self, name: str) -> bool:
        value = super().__getitem__(name)
        return isinstance(value, _Loader) and not value.built_in

    def _loads(self, name: str) -> bool:
        try:
            self[name]
        except (Exception, SystemExit) as err:  # noqa: BLE001 - a plugin may fail in any way
            _warn("skipped the command `%s`: %s", name, err)
            return False
        return True


class _Loader:
    """Loads one command."""

    def __init__(self, make: "Callable[[], object]", *, built_in: bool = False) -> None:
        self._make = make
        self.built_in = built_in

    def load(self, name: str) -> "SubCommand":
        from torchx.cli.cmd_base import SubCommand

        origin = getattr(self._make, "distribution", None) or "an unknown distribution"
        try:
            made = self._make()
        except (Exception, SystemExit) as err:
            if self.built_in:
                raise
            from torchx.errors import TorchXError

            msg = f"the command `{name}` of {origin} cannot be loaded: {type(err).__name__}: {err}"
            raise TorchXError(msg) from err
        if not isinstance(made, SubCommand):
            msg = (
                f"the entry point `{name}` of group `{GROUP}` of {origin} gives a"
                f" `{type(made).__name__}`, it must be a SubCommand class or a function that"
                " makes one"
            )
            raise AssertionError(msg)
        return made


def load_group(group: str) -> "dict[str, Callable[[], object]]":
    """Returns the entry points of a group by name; replaced in tests."""
    from torchx.util import entrypoints

    return entrypoints.load_group(group)


def get_default_sub_cmds() -> dict[str, "SubCommand"]:
    """Returns new instances of the built-in commands, in the order of the help text."""
    loaders = {name: _Loader(_maker(it), built_in=True) for name, it in COMMANDS.items()}
    return _SubCommands(loaders)


def get_sub_cmds() -> dict[str, "SubCommand"]:
    """Returns the built-in commands, replaced and extended by the entry points of plugins."""
    cmds = get_default_sub_cmds()
    try:
        plugins = load_group(GROUP)
    except Exception as err:  # noqa: BLE001 - a broken installation must not break torchx
        _warn("commands of plugins are not available: %s", err)
        plugins = {}
    loaders: dict[str, Any] = {name: _Loader(make) for name, make in (plugins or {}).items()}
    cmds.update(loaders)
    return cmds


def create_parser(subcmds: dict[str, "SubCommand"]) -> "argparse.ArgumentParser":
    """Creates the parser of the command line; a command's arguments are added on first use."""
    from torchx.cli import _parser

    return _parser.create_root(subcmds)


def run_main(subcmds: dict[str, "SubCommand"], argv: list[str] | None = None) -> None:
    """Runs the command line; every error becomes `SystemExit` with its exit code."""
    from torchx.cli import _output

    _output.reset()
    try:
        _dispatch(subcmds, sys.argv[1:] if argv is None else list(argv))
    except SystemExit as err:
        if err.code not in (None, 0):
            _output.error_json("UsageError", *_usage_message(err))
        _flush_help(err)
        raise
    except BrokenPipeError:
        _output.close_stdout()
    except BaseException as err:  # noqa: BLE001 - the one place for exit codes
        _exit(err)


def main(argv: list[str] | None = None) -> None:
    """Runs ``torchx`` with the arguments, by default those of the process."""
    hook, sys.unraisablehook = sys.unraisablehook, _signal_again
    try:
        _main(argv)
    except KeyboardInterrupt:  # before or while errors could be reported
        raise SystemExit(_INTERRUPTED) from None
    finally:
        sys.unraisablehook = hook


def _signal_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Sends a signal again if its exception was swallowed.

    Python's import system has callbacks of weak references; what is raised in one of these, or
    in a ``__del__``, is printed with its traceback and gone: Ctrl-C would have no effect.
    """
    err = unraisable.exc_value
    if not isinstance(err, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    from _thread import get_ident, start_new_thread

    left: list[bool] = []
    start_new_thread(_signal, (getattr(err, "sigval", _SIGINT), get_ident(), left))
    left.append(True)  # an exception in this hook would be lost as well


def _signal(number: int, thread: int, left: list[bool]) -> None:
    from signal import pthread_kill
    from time import sleep

    while not left:
        sleep(_CALLBACK_S)
    sleep(_CALLBACK_S)
    pthread_kill(thread, number)  # a real signal, which ends waiting as well


def _main(argv: list[str] | None) -> None:
    if argv is None:
        from torchx._startup import collector

        collector.spare()
        if "_ARGCOMPLETE" in os.environ:
            from torchx.cli import _completion

            _completion.complete(get_sub_cmds())
        argv = sys.argv[1:]
    if list(argv) in (["--version"], ["-V"]):
        _answer(f"torchx-{__version__}\n")
    subcmds = get_sub_cmds()
    if list(argv) in (["--help"], ["-h"]) and not _any_foreign(subcmds):
        from torchx.cli import _help

        _answer(_help.render(subcmds))
    run_main(subcmds, argv)


def _answer(text: str) -> "NoReturn":
    """Writes what takes no command, without all that commands need."""
    stdout = sys.stdout
    try:
        if stdout is not None:  # it was closed from the start
            stdout.write(text)
            stdout.flush()
    except OSError as err:
        from torchx.cli import _output

        _output.close_stdout()
        if not isinstance(err, BrokenPipeError):
            msg = f"the output cannot be written: {err.strerror or err}"
            _output.fail(msg, kind="UnwritableOutput")
    raise SystemExit(0)


def _flush_help(err: SystemExit) -> None:
    """Flushes what argparse printed, which the interpreter would do too late to handle errors."""
    from torchx.cli import _output

    try:
        _output.write(sys.stdout, "")
    except BrokenPipeError:
        _output.close_stdout()
    except Exception as unwritable:  # noqa: BLE001 - `_exit` reports it
        if err.code in (None, 0):
            _exit(unwritable)


def _any_foreign(subcmds: dict[str, "SubCommand"]) -> bool:
    """Returns True if help must import plugins to list their commands."""
    return isinstance(subcmds, _SubCommands) and subcmds.any_foreign()


def _dispatch(subcmds: dict[str, "SubCommand"], argv: list[str]) -> None:
    if argv[:1] != ["run"]:
        _call(subcmds, argv)
        return
    from torchx._startup import local_supervisor

    local_supervisor.warm_up_for(argv)
    try:
        _call(subcmds, argv)
    finally:
        local_supervisor.dismiss()


def _call(subcmds: dict[str, "SubCommand"], argv: list[str]) -> None:
    from torchx.cli import _output, _parser

    _output.configure_logging(_parser.level_of_environment())  # plugins may warn while parsing
    parser, args = _parser.parse(subcmds, argv)
    level = _parser.log_level(parser, args.log_level)
    _output.set_color(args.color)
    _output.set_json(bool(getattr(args, "json", False)))
    _output.configure_logging(level)
    if not hasattr(args, "func"):  # no command
        _output.out(parser.format_help(), end="")
        raise SystemExit(1)
    _parser.report_config(args)
    args.func(args)


def _exit(err: BaseException) -> "NoReturn":
    """Ends the process with the exception's message and exit code."""
    from torchx.cli import _errors, _output

    if isinstance(err, _errors.ReaderGone):
        _output.close_stdout()
        raise SystemExit(0) from None
    _output.log().debug("traceback", exc_info=err)
    number = _errors.signal_of(err)
    if number is not None:
        _output.error_json("Interrupted", f"interrupted by signal {number}")
        raise SystemExit(_errors.EXIT_SIGNAL + number) from None
    failure = _errors.explain(err)
    lines: list[str] = []
    more: dict[str, object] = {}
    if failure.why is not None:
        from torchx.cli import _refused

        lines, more = _refused.lines(failure.why, failure.message), _refused.to_json(failure.why)
    _output.fail(
        failure.message,
        kind=failure.kind,
        hint=failure.hint,
        code=failure.code,
        lines=lines,
        more=more,
    )


def _usage_message(err: SystemExit) -> tuple[str, str | None]:
    """Returns the error that argparse printed, and a hint, as far as known."""
    text = getattr(err, "message", None) or err.__context__ or "see the message on stderr"
    return str(text), None


def _maker(target: str) -> "Callable[[], object]":
    """Returns a function that imports ``module:class`` and calls it."""

    def make() -> object:
        from importlib import import_module

        module, _, name = target.partition(":")
        return getattr(import_module(module), name)()

    return make


def _warn(message: str, *args: object) -> None:
    from torchx.cli import _output

    _output.log().warning(message, *args)


if __name__ == "__main__":
    main()
