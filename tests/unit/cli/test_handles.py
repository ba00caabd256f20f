"""App ids, their beginnings and nothing at all in place of handles; short names of commands."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx._launches import launches, note_deletion, note_launch
from torchx.cli._handles import resolve, resolve_identifier
from torchx.errors import AmbiguousApp, InvalidInput, UnresolvedApp

SLURM = "slurm://torchx/4711"
KUBE = "kubernetes://torchx/team:train-f7k2"
LOCAL = "local_cwd://torchx/sh-9qpw"


@pytest.fixture
def launched() -> None:
    for handle in (SLURM, KUBE, LOCAL):
        note_launch(handle)


# -- what is noted --------------------------------------------------------------------------------


def test_launches_are_noted_the_latest_first(launched: None) -> None:
    assert [launch.handle for launch in launches()] == [LOCAL, KUBE, SLURM]
    note_launch(SLURM)
    assert [launch.handle for launch in launches()] == [SLURM, LOCAL, KUBE]


def test_what_is_deleted_is_forgotten_until_it_is_launched_again(launched: None) -> None:
    note_deletion(LOCAL)
    assert [launch.handle for launch in launches()] == [KUBE, SLURM]
    note_launch(LOCAL)
    assert launches()[0].handle == LOCAL


def test_a_long_file_keeps_its_later_half() -> None:
    for number in range(2):
        for at in range(3):
            note_launch(f"slurm://torchx/{number}{at}-{'x' * 130_000}")
    kept = [launch.app_id[:2] for launch in launches()]
    assert kept[0] == "12"
    assert 2 <= len(kept) < 6


def test_a_damaged_file_is_read_as_far_as_it_goes(launched: None) -> None:
    path = Path(os.environ["TORCHX_HOME"], "launched")
    path.write_bytes(b"\xff\xfe\n\n12\nx y\n" + path.read_bytes() + b"- ")
    assert [launch.handle for launch in launches()] == [LOCAL, KUBE, SLURM]


def test_a_home_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", "/dev/null/home")
    note_launch(SLURM)
    assert launches() == []


# -- what is meant --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "handle"),
    [
        ("remote://other/thing", "remote://other/thing"),
        ("4711", SLURM),
        ("47", SLURM),
        ("team:train-f7k2", KUBE),
        ("team:tr", KUBE),
        ("train-f7k2", KUBE),
        ("tr", KUBE),
        ("sh-9qpw", LOCAL),
        (None, LOCAL),
    ],
)
def test_what_a_text_stands_for(launched: None, text: str | None, handle: str) -> None:
    assert resolve(text) == handle


def test_a_whole_handle_takes_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "~")
    monkeypatch.delenv("TORCHX_HOME")  # any look would fail: there is no place for it
    assert resolve(SLURM) == SLURM


def test_an_app_id_wins_over_longer_ones_that_begin_like_it(launched: None) -> None:
    note_launch("slurm://torchx/47112")
    assert resolve("4711") == SLURM
    with pytest.raises(AmbiguousApp, match="any of 2 apps"):
        resolve("471")


def test_one_app_id_on_two_schedulers_is_ambiguous(launched: None) -> None:
    note_launch("lsf://torchx/4711")
    with pytest.raises(AmbiguousApp) as raised:
        resolve("4711")
    assert "lsf://torchx/4711" in str(raised.value)
    assert SLURM in str(raised.value)


def test_only_some_of_many_candidates_are_listed() -> None:
    for number in range(30):
        note_launch(f"slurm://torchx/job-{number}")
    with pytest.raises(AmbiguousApp) as raised:
        resolve("job")
    assert str(raised.value).count("slurm://") == 10
    assert "... and 20 more" in str(raised.value)


def test_local_jobs_that_were_not_noted_are_found() -> None:
    os.makedirs(os.path.join(os.environ["TORCHX_HOME"], "local", "jobs", "old-job-1"))
    assert resolve("old") == "local_cwd://torchx/old-job-1"


@pytest.mark.parametrize("text", ["train-f7k3", "x"])
def test_what_nothing_is_called(launched: None, text: str) -> None:
    with pytest.raises(UnresolvedApp, match="torchx list -s"):
        resolve(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "'a\\nb'"),
        ("\033[31mred", "'\\x1b[31mred'"),
        ("a\udcffb", "'a\\udcffb'"),
        ("x" * 5000, f"`{'x' * 100}...`"),
        ("ünï", "`ünï`"),
    ],
)
def test_whatever_is_given_the_error_is_one_short_line(
    launched: None, text: str, shown: str
) -> None:
    with pytest.raises(UnresolvedApp) as raised:
        resolve(text)
    assert f"begins with {shown}. Give" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("look", [resolve, resolve_identifier])
def test_an_empty_text_is_no_beginning(launched: None, look: Callable[[str], str]) -> None:
    with pytest.raises(InvalidInput, match="is a variable not set"):
        look("")


def test_an_empty_handle_is_a_usage_error(
    call: Callable[..., Any], launched: None, caplog: pytest.LogCaptureFixture
) -> None:
    for command in ("status", "log", "cancel", "delete", "describe", "why", "rerun", "shell"):
        caplog.clear()
        assert call(command, "").code == 2
        assert "an empty text is no handle" in caplog.text


def test_nothing_was_launched_yet() -> None:
    with pytest.raises(UnresolvedApp, match="no app was launched from here yet"):
        resolve(None)


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("tr", KUBE),
        ("tr/worker", f"{KUBE}/worker"),
        ("tr/worker/0,2", f"{KUBE}/worker/0,2"),
        (f"{SLURM}/worker/0", f"{SLURM}/worker/0"),
        (None, LOCAL),
    ],
)
def test_identifiers_of_logs(launched: None, text: str | None, identifier: str) -> None:
    assert resolve_identifier(text) == identifier


# -- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def job(call: Callable[..., Any], component_file: Path) -> str:
    """The app id of a local job that has ended."""
    done = call("run", f"{component_file}:sh", "--cmd", "echo hello")
    assert done.code == 0
    return str(done.out).strip().rpartition("/")[2]


def test_the_last_app_needs_no_name(call: Callable[..., Any], job: str) -> None:
    assert json.loads(call("status", "--json").out)["app_id"] == job
    assert json.loads(call("describe", "--json").out)["name"] == job
    assert "hello" in call("log").out
    assert "hello" in call("logs", job[:5], "work/0", "-n", "1").out
    assert "hello" in call("logs", "-f", f"{job}/work").out


def test_what_changes_an_app_needs_its_name(call: Callable[..., Any], job: str) -> None:
    for name in ("cancel", "delete", "rm"):
        assert call(name).code == 2
    assert call("status").code == 0


def test_a_short_name_deletes(call: Callable[..., Any], job: str) -> None:
    assert call("rm", job[:6]).code == 0
    for gone in ([job], []):  # what is no handle is a wrong argument, whatever it looks like
        assert call("status", *gone).code == 2
        assert call("log", *gone).code == 1  # as published


def test_ambiguous_names_change_nothing(
    call: Callable[..., Any], job: str, caplog: pytest.LogCaptureFixture
) -> None:
    note_launch("slurm://torchx/job-x")
    assert call("delete", "job").code == 2
    assert "slurm://torchx/job-x" in caplog.text
    assert call("status", job).code == 0


def test_short_names_of_commands_and_flags(call: Callable[..., Any], job: str) -> None:
    assert job in call("ps").out
    assert job in call("--log_level", "ERROR", "ps").out
    assert call("-V").out == call("--version").out
    assert call("--color", "never", "-V").out == call("--version").out


def test_a_plugins_command_wins_over_a_short_name(
    call: Callable[..., Any], install: Callable[..., None]
) -> None:
    from torchx.cli.cmd_base import SubCommand

    class Ps(SubCommand):
        def add_arguments(self, subparser: Any) -> None: ...
        def run(self, args: Any) -> None:
            raise SystemExit(17)

    install("torchx.cli.cmds", "ps", Ps)
    assert call("ps").code == 17
    assert call("--color", "never", "ps").code == 17


def test_quiet_leaves_results_warnings_and_errors(
    torchx: Callable[..., Any], component_file: Path
) -> None:
    for argv in (["-q", "run"], ["run", "-q"]):
        done = torchx(*argv, f"{component_file}:sh", "--cmd", "echo hello")
        assert done.out.startswith("local_cwd://torchx/job-")
        assert "hello" in done.err
        assert "INFO" not in done.err
        failed = torchx(*argv, f"{component_file}:sh", "--cmd", "exit 3")
        assert failed.code == 1
        assert "exited with code 3" in failed.err
