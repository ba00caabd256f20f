"""The table of commands, global flags, plugins and exit codes."""

import argparse
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchx
from torchx.cli import main as cli
from torchx.cli.cmd_base import SubCommand
from torchx.cli.cmd_run import CmdRun

NAMES = list(cli.COMMANDS)


class Top(SubCommand):
    """A command of a plugin."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.add_argument("--limit", type=int, default=10)

    def run(self, args: argparse.Namespace) -> None:
        sys.stdout.write(f"top {args.limit}\n")


def test_version_is_exactly_one_line(call: Callable[..., Any]) -> None:
    for argv in (["--version"], ["--log_level", "ERROR", "--version"]):
        result = call(*argv)
        assert (result.code, result.out) == (0, f"torchx-{torchx.__version__}\n")


def test_help_shows_every_command(call: Callable[..., Any]) -> None:
    result = call("--help")
    assert result.code == 0
    for name in NAMES:
        assert f"\n  {name} " in result.out
    assert call("-h").out == result.out
    assert call("--log_level", "ERROR", "--help").out == result.out


def test_without_a_command_help_goes_to_stdout_and_the_code_is_1(call: Callable[..., Any]) -> None:
    result = call()
    assert (result.code, result.out) == (1, call("--help").out)


def test_default_commands_come_in_order_as_new_instances() -> None:
    first, second = cli.get_default_sub_cmds(), cli.get_default_sub_cmds()
    assert " ".join(first) == (
        "builtins cancel completion configure delete describe doctor exec list log plugins"
        " port-forward prune rerun run runopts shell status tracker why"
    )
    assert all(isinstance(cmd, SubCommand) for cmd in first.values())
    assert isinstance(first["run"], CmdRun)
    assert first["run"] is first["run"]
    assert first["run"] is not second["run"]
    assert isinstance(dict(first)["run"], CmdRun)
    assert first.get("nope") is None


def test_every_command_adds_its_arguments_to_a_bare_parser() -> None:
    for cmd in cli.get_default_sub_cmds().values():
        parser = argparse.ArgumentParser()
        cmd.add_arguments(parser)
        assert parser.description


@pytest.mark.parametrize("name", NAMES)
def test_every_help_has_a_description_and_examples(name: str, call: Callable[..., Any]) -> None:
    result = call(name, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: torchx {name} ")
    assert "examples:\n" in result.out


def test_help_of_run_names_the_component(call: Callable[..., Any]) -> None:
    assert "usage: torchx run [options] COMPONENT [ARGS ...]" in call("run", "--help").out


def test_the_public_parser_holds_every_command() -> None:
    parser = cli.create_parser(cli.get_sub_cmds())
    args = parser.parse_args(["status", "local_cwd://s/a"])
    assert args.app_handle == "local_cwd://s/a"
    assert args.func.__self__.__class__.__name__ == "CmdStatus"


def test_an_unknown_command_is_usage_and_a_similar_one_is_named(call: Callable[..., Any]) -> None:
    result = call("staus")
    assert result.code == 2
    assert "invalid choice: 'staus'" in result.err
    assert "Did you mean `status`?" in result.err
    assert "Traceback" not in result.err


def test_an_unknown_flag_is_usage_and_a_similar_one_is_named(call: Callable[..., Any]) -> None:
    result = call("list", "--shceduler", "x")
    assert result.code == 2
    assert "unrecognized arguments: --shceduler x" in result.err
    assert "Did you mean `--scheduler`?" in result.err


def test_an_option_of_a_command_in_front_of_it_is_explained(call: Callable[..., Any]) -> None:
    result = call("--json", "list")
    assert result.code == 2
    assert "Options of a command follow its name" in result.err
    assert "Did you mean" not in result.err


def test_log_level_after_the_command_is_not_accepted(call: Callable[..., Any]) -> None:
    result = call("builtins", "--log_level", "ERROR")
    assert result.code == 2
    assert "unrecognized arguments" in result.err


@pytest.mark.parametrize(
    "argv", [["--log_level=ERROR"], ["--log_level", "error"], ["--log", "40"], []]
)
def test_log_levels_in_any_case_and_as_numbers(argv: list[str], call: Callable[..., Any]) -> None:
    assert call(*argv, "builtins").code == 0


def test_a_bad_log_level_is_usage(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = call("--log_level", "loud", "builtins")
    assert result.code == 2
    assert "`loud` is not a log level" in result.err
    monkeypatch.setenv("LOGLEVEL", "quiet")
    assert call("builtins").code == 2
    assert call("--version").code == 0
    assert call("--help").code == 0


def test_records_have_time_and_level(torchx: Callable[..., Any]) -> None:
    result = torchx("status", "local_cwd://torchx/nope")
    assert result.code == 1
    assert result.out == ""
    first = result.err.splitlines()[0].split()
    assert first[0] == "torchx"
    assert first[3] == "ERROR"
    assert torchx("--log_level", "CRITICAL", "status", "local_cwd://torchx/nope").err == ""


def test_a_traceback_is_shown_only_at_debug(torchx: Callable[..., Any]) -> None:
    assert "Traceback" not in torchx("status", "nope").err
    assert "Traceback" in torchx("--log_level", "DEBUG", "status", "nope").err


def test_a_plugin_adds_a_command(install: Callable[..., None], call: Callable[..., Any]) -> None:
    install(cli.GROUP, "qtop", Top)
    assert list(cli.get_sub_cmds()) == [*NAMES, "qtop"]
    assert call("qtop", "--limit", "3").out == "top 3\n"
    assert "qtop" in call("--help").out


def test_a_plugin_replaces_a_command_in_its_place(
    install: Callable[..., None], call: Callable[..., Any]
) -> None:
    install(cli.GROUP, "run", Top)
    assert list(cli.get_sub_cmds()) == NAMES
    assert isinstance(cli.get_sub_cmds()["run"], Top)
    assert call("run").out == "top 10\n"


def test_a_broken_plugin_breaks_only_its_own_command(
    install: Callable[..., None], call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    install(cli.GROUP, "bad", ImportError("no acme"))
    install(cli.GROUP, "odd", lambda: 7)
    for argv in (["--version"], ["builtins"]):
        assert call(*argv).code == 0
    assert "bad" not in caplog.text
    assert call("bad").code == 1
    assert "no acme" in caplog.text
    assert call("odd").code == 1
    for word in ("odd", cli.GROUP, "int"):
        assert word in caplog.text
    with pytest.raises(AssertionError, match="odd"):
        cli.get_sub_cmds()["odd"]
    caplog.clear()
    assert list(dict(cli.get_sub_cmds().items())) == NAMES
    assert "`bad`" in caplog.text


@pytest.mark.parametrize("argv", [["--help"], ["--log_level", "ERROR", "--help"], []])
def test_help_leaves_broken_commands_out_and_tells_of_each_once(
    argv: list[str],
    install: Callable[..., None],
    call: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    install(cli.GROUP, "qtop", Top)
    install(cli.GROUP, "bad", ImportError("no acme"))
    install(cli.GROUP, "gone", SystemExit(3))
    install(cli.GROUP, "odd", lambda: 7)
    result = call(*argv)
    shown = [line.split()[0] for line in result.out.splitlines() if line.startswith("  ")]
    assert [name for name in shown if name in (*NAMES, "qtop", "bad", "gone", "odd")] == [
        *NAMES,
        "qtop",
    ]
    for name in ("bad", "gone", "odd"):
        assert caplog.text.count(f"skipped the command `{name}`") == 1
    assert caplog.text.count("an unknown distribution") == 3


def test_help_imports_no_command_of_ours(torchx: Callable[..., Any], tmp_path: Path) -> None:
    info = tmp_path / "acme-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torchx.cli.cmds]\nbad = no_such_acme:Cmd\n")
    env = {"PYTHONPATH": str(tmp_path), "PYTHONPROFILEIMPORTTIME": "1"}
    told = torchx("--help", env=env).err
    assert "skipped the command `bad`: the command `bad` of acme 1 cannot be loaded" in told
    assert "torchx.cli.cmd_base" in told
    assert "torchx.cli.cmd_run" not in told
    assert "torchx.cli.cmd_base" not in torchx("--help", env={**env, "PYTHONPATH": ""}).err


def test_plugins_are_looked_up_through_the_module_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "load_group", lambda group: {"x": Top} if group == cli.GROUP else {})
    assert isinstance(cli.get_sub_cmds()["x"], Top)

    def fail(group: str) -> dict[str, Any]:
        raise OSError(group)

    monkeypatch.setattr(cli, "load_group", fail)
    assert list(cli.get_sub_cmds()) == NAMES


def test_commands_of_the_caller_are_dispatched(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run_main({"top": Top()}, ["top"])
    assert capsys.readouterr().out == "top 10\n"


class Failing(SubCommand):
    def __init__(self, err: BaseException) -> None:
        self.err = err

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.add_argument("--json", action="store_true")

    def run(self, args: argparse.Namespace) -> None:
        raise self.err


class Signalled(Exception):
    sigval = 15


@pytest.mark.parametrize(
    ("err", "code"),
    [
        (ValueError("no"), 1),
        (KeyError("no"), 1),
        (OSError("no"), 1),
        (ModuleNotFoundError("No module named 'docker'", name="docker"), 1),
        (KeyboardInterrupt(), 130),
        (Signalled(), 143),
        (SystemExit(3), 3),
    ],
)
def test_exceptions_become_exit_codes_and_one_json_object(
    err: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run_main({"fail": Failing(err)}, ["fail", "--json"])
    assert ended.value.code == code
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"]
    assert error["type"]


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    err = ModuleNotFoundError("No module named 'docker'", name="docker")
    with pytest.raises(SystemExit):
        cli.run_main({"fail": Failing(err)}, ["fail"])
    assert "pip install 'torchx[docker]'" in caplog.text


def test_a_reader_that_goes_away_is_no_error() -> None:
    cli.run_main({"fail": Failing(BrokenPipeError())}, ["fail"])


STRUCK = """
import os, sys, threading, time
from torchx.cli.main import main

begun = threading.Event()

def strike():
    begun.wait()
    time.sleep(float(sys.argv[1]))
    os.kill(os.getpid(), 2)

threading.Thread(target=strike).start()
code = 0
try:
    begun.set()
    main(["list"])
    time.sleep(60)
except SystemExit as err:
    code = err.code
except KeyboardInterrupt as err:  # it came before or after our function
    while err.__traceback__ is not None:
        if "torchx" in err.__traceback__.tb_frame.f_code.co_filename:
            code = "escaped"
        err.__traceback__ = err.__traceback__.tb_next
os.write(1, str(code).encode())
"""


def test_a_very_early_interrupt_has_no_traceback() -> None:
    codes = set()
    for i in range(20):
        command = [sys.executable, "-c", STRUCK, str(i * 0.002)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        codes.add(done.stdout.split()[-1])
    assert "130" in codes
    assert codes <= {"0", "130"}


SWALLOWED = """
import os, time, weakref
from torchx.cli.cmd_base import SubCommand
from torchx.cli import main as cli

class Thing:
    pass

def struck(_):
    os.kill(os.getpid(), 2)
    for _ in range(1000):
        pass

class Cmd(SubCommand):
    def add_arguments(self, subparser):
        subparser.set_defaults(func=self.run)

    def run(self, args):
        thing = Thing()
        weak = weakref.ref(thing, struck)
        del thing
        time.sleep(60)

cli.load_group = lambda group: {"x": Cmd}
cli.main(["x"])
"""


def test_an_interrupt_in_a_callback_of_the_interpreter_is_not_lost() -> None:
    command = [sys.executable, "-c", SWALLOWED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (130, "")


def test_usage_errors_are_json_where_json_is_asked_for(call: Callable[..., Any]) -> None:
    for argv in (
        ["cancel", "--json"],
        ["log", "--json", "--streams", "x", "k://s/a"],
        ["run", "--json", "--nope", "utils.echo"],
        ["run", "--json"],
        ["bogus", "--json"],
    ):
        result = call(*argv)
        assert result.code == 2
        assert json.loads(result.out)["error"]["type"] == "UsageError"


def test_json_behind_the_component_is_the_components(call: Callable[..., Any]) -> None:
    result = call("run", "--nope", "utils.echo", "--json")
    assert (result.code, result.out) == (2, "")


def test_a_broken_config_leaves_other_commands_alone(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".torchxconfig").write_text("no section\n")
    assert call("--version").code == 0
    assert call("--help").code == 0
    assert call("run", "--help").code == 0
    assert call("builtins").code == 0
    assert ".torchxconfig, line 1" in caplog.text
    caplog.clear()
    assert call("run", "--dryrun", "utils.echo").code == 1
    assert ".torchxconfig, line 1" in caplog.text
    assert call("list").code == 1
    monkeypatch.setenv("TORCHXCONFIG", "missing")
    assert call("run", "--help").code == 0
    caplog.clear()
    assert call("run", "--dryrun", "utils.echo").code == 1
    assert "TORCHXCONFIG=missing" in caplog.text


def test_any_flag_of_any_command_has_its_default_in_the_config(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture, install: Callable[..., None]
) -> None:
    install(cli.GROUP, "qtop", Top)
    Path(".torchxconfig").write_text(
        "[cli:qtop]\nlimit = 4\n[cli:builtins]\njson = yes\n[cli:runopts]\njsn = 1\n"
    )
    assert call("qtop").out == "top 4\n"
    assert call("qtop", "--limit", "5").out == "top 5\n"
    assert json.loads(call("builtins").out)["components"]
    caplog.set_level(logging.WARNING)
    call("runopts", "local_cwd")
    assert "`jsn`" in caplog.text
    assert "Did you mean `json`?" in caplog.text


@pytest.mark.parametrize("line", ["json = maybe", "streams = out"])
def test_a_bad_default_in_the_config_is_named(
    line: str, call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    Path(".torchxconfig").write_text(f"[cli:log]\n{line}\n")
    assert call("log", "local_cwd://s/a").code == 2
    assert f"`{line}` in section [cli:log]" in caplog.text


def test_the_package_is_the_command_line_as_well() -> None:
    command = [sys.executable, "-m", "torchx", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torchx-")
