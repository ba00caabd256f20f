"""``status``, ``describe``, ``cancel``, ``delete``, ``list``, ``runopts`` and ``builtins``."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx.cli.cmd_cancel import CmdCancel
from torchx.cli.cmd_delete import CmdDelete
from torchx.cli.cmd_list import HANDLE_HEADER, NAME_HEADER, STATUS_HEADER
from torchx.cli.cmd_run import CmdBuiltins
from torchx.cli.cmd_status import parse_list_arg
from torchx.runner import Runner
from torchx.specs import AppDef, AppState, Resource, Role

HANDLE = "remote://torchx/a"

APP = AppDef(
    "app",
    [
        Role(
            "w",
            "img",
            entrypoint="x",
            env={"API_KEY": "s3cr3t", "K": "v"},
            resource=Resource(1, 0, 1),
        )
    ],
)


@pytest.fixture
def job(remote: Any) -> Any:
    remote.jobs = {"a": APP}
    remote.states = [AppState.RUNNING]
    return remote


# -- status -----------------------------------------------------------------------------------


def test_status_is_the_text_of_the_app_status(call: Callable[..., Any], job: Any) -> None:
    result = call("status", HANDLE)
    assert result.code == 0
    assert result.out.startswith("AppStatus:\n    State: RUNNING\n    Num Restarts: 0\n")
    assert "\n *w[0]:RUNNING\n  w[1]:RUNNING" in result.out
    assert job.closed == 1


def test_status_as_json(call: Callable[..., Any], job: Any) -> None:
    data = json.loads(call("status", "--json", HANDLE).out)
    assert {
        key: data[key] for key in ("state", "handle", "app_id", "scheduler", "ui_url", "url")
    } == {
        "state": "RUNNING",
        "handle": HANDLE,
        "app_id": "a",
        "scheduler": "remote",
        "ui_url": "http://ui",
        "url": "http://ui",
    }
    replica = data["roles"][0]["replicas"][1]
    assert (replica["id"], replica["state"], replica["state_name"]) == (1, 3, "RUNNING")


def test_status_of_some_roles(
    call: Callable[..., Any], job: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert "w[0]" in call("status", "--roles", "", HANDLE).out
    assert "w[0]" in call("status", "--roles", "x,w", HANDLE).out
    caplog.clear()
    result = call("status", "--roles", "ww", HANDLE)
    assert result.code == 0
    assert "w[0]" not in result.out
    assert "Did you mean `w`?" in caplog.text
    assert parse_list_arg("") is None
    assert parse_list_arg("a,b") == ["a", "b"]


@pytest.mark.parametrize("state", list(AppState))
def test_the_exit_code_tells_the_state_only_when_asked(
    state: AppState, call: Callable[..., Any], job: Any
) -> None:
    job.states = [state]
    failed = state in (AppState.FAILED, AppState.CANCELLED)
    assert call("status", HANDLE).code == 0
    assert call("status", "--exit-status", HANDLE).code == int(failed)


def test_status_asks_once(
    call: Callable[..., Any], job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Runner, "status", lambda self, handle: asked.append(handle))
    call("status", HANDLE)
    assert asked == [HANDLE]


@pytest.mark.parametrize("argv", [["status"], ["status", "--wait"], ["describe"]])
@pytest.mark.parametrize(
    ("handle", "code", "words"),
    [
        ("remote://torchx/nope", 1, ["nope", "remote"]),
        ("foo://a/b", 2, ["foo"]),
        ("bogus", 2, ["bogus", "SCHEDULER://SESSION/APP_ID"]),
    ],
)
def test_apps_that_cannot_be_found(
    argv: list[str],
    handle: str,
    code: int,
    words: list[str],
    call: Callable[..., Any],
    job: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = call(*argv, handle)
    assert (result.code, result.out) == (code, "")
    for word in words:
        assert word in caplog.text
    as_json = call(*argv, "--json", handle)
    assert as_json.code == code
    assert list(json.loads(as_json.out)) == ["error"]


# -- describe ---------------------------------------------------------------------------------


def test_describe_shows_the_app_without_secrets(call: Callable[..., Any], job: Any) -> None:
    text = call("describe", HANDLE).out
    assert text.startswith("{ 'metadata': {},\n  'name': 'a',\n  'roles': [")
    assert "'API_KEY': '***'" in text
    assert "'K': 'v'" in text
    assert "s3cr3t" in call("describe", "--show-secrets", HANDLE).out
    data = json.loads(call("describe", "--json", HANDLE).out)
    assert data["roles"][0]["env"] == {"API_KEY": "***", "K": "v"}


# -- cancel and delete ------------------------------------------------------------------------


def test_cancel_and_delete_say_what_happened(
    call: Callable[..., Any], job: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert call("cancel", "--wait", HANDLE).code == 0
    assert f"`{HANDLE}` is CANCELLED" in caplog.text
    data = json.loads(call("cancel", "--json", HANDLE).out)
    assert data == {"handle": HANDLE, "app_id": "a", "scheduler": "remote", "state": "CANCELLED"}
    assert "had ended before: CANCELLED" in caplog.text
    assert call("delete", HANDLE).out == ""
    assert f"`{HANDLE}` is deleted" in caplog.text
    for name in ("cancel", "delete"):
        caplog.clear()
        result = call(name, HANDLE)
        assert (result.code, result.out) == (1, "")
        assert "app `a` does not exist on scheduler `remote`" in caplog.text
    error = json.loads(call("delete", "--json", HANDLE).out)["error"]
    assert error["type"] == "UnknownAppException"


@pytest.mark.parametrize("name", ["cancel", "delete", "status", "describe", "log"])
def test_one_wording_for_an_app_that_does_not_exist(
    name: str, call: Callable[..., Any], job: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert call(name, "remote://torchx/never").code == 1
    (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert record.getMessage() == (
        "app `never` does not exist on scheduler `remote`, or has been purged from it\n"
        "`torchx list -s remote` shows the apps it knows"
    )
    error = json.loads(call(name, "--json", "remote://torchx/never").out)["error"]
    assert error["message"] == record.getMessage().splitlines()[0]


@pytest.mark.parametrize("name", ["cancel", "delete"])
def test_cancel_and_delete_are_one_call_of_the_runner(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    closed: list[bool] = []
    monkeypatch.setattr(Runner, name, lambda self, handle: calls.append(handle))
    monkeypatch.setattr(Runner, "close", lambda self: closed.append(True))
    cmd = CmdCancel() if name == "cancel" else CmdDelete()
    parser = argparse.ArgumentParser()
    cmd.add_arguments(parser)
    cmd.run(parser.parse_args(["foo://session/id"]))
    assert calls == ["foo://session/id"]
    assert closed == [True]


@pytest.mark.parametrize("name", ["cancel", "delete"])
def test_bad_handles_of_cancel_and_delete(name: str, call: Callable[..., Any]) -> None:
    assert call(name, "foo://a/b").code == 2
    assert call(name, "bogus").code == 2


# -- list -------------------------------------------------------------------------------------


def test_a_list_is_a_table(call: Callable[..., Any], remote: Any) -> None:
    lines = call("list", "-s", "remote").out.splitlines()
    assert lines == [
        "APP HANDLE             APP NAME  APP STATUS",
        "---------------------  --------  ----------",
        "remote://torchx/job-0  n0        RUNNING",
        "remote://torchx/job-1  n1        FAILED",
    ]
    assert lines[0].split("  ")[0] == HANDLE_HEADER
    assert NAME_HEADER in lines[0]
    assert lines[0].endswith(STATUS_HEADER)
    assert remote.list_cfg is None


def test_a_list_by_state_and_as_json(call: Callable[..., Any], remote: Any) -> None:
    data = json.loads(call("list", "-s", "remote", "--state", "failed,PENDING", "--json").out)
    assert data == [
        {
            "handle": "remote://torchx/job-1",
            "app_id": "job-1",
            "name": "n1",
            "scheduler": "remote",
            "state": "FAILED",
        }
    ]
    result = call("list", "-s", "remote", "--state", "FALED")
    assert result.code == 2
    assert "Did you mean `FAILED`?" in result.err


def test_a_list_with_options(call: Callable[..., Any], remote: Any) -> None:
    call("list", "-s", "remote", "-cfg", "team=a")
    assert remote.list_cfg == {"team": "a"}
    Path(".torchxconfig").write_text(
        "[cli:list]\nscheduler = remote\n[remote]\nteam = b\nqueue = q\n"
    )
    from torchx.cli.argparse_util import torchxconfig

    torchxconfig._subcmd_configs.clear()
    assert call("list", "-cfg", "team=a").code == 0
    assert remote.list_cfg == {"team": "a", "queue": "q"}
    assert call("list", "-cfg", "a=b", "-cfg", "c=d").code == 2


def test_an_empty_list_is_a_header(torchx: Callable[..., Any]) -> None:
    result = torchx("list")
    assert result.code == 0
    assert result.out.splitlines()[0].startswith(HANDLE_HEADER)
    assert len(result.out.splitlines()) == 2


def test_waiting_for_a_status_ends_with_the_job(torchx: Callable[..., Any]) -> None:
    handle = torchx("run", "--detach", "utils.sh", "--", "sh", "-c", "sleep 1; exit 3").out.strip()
    result = torchx("status", "--wait", "--exit-status", handle)
    assert result.code == 1
    assert "FAILED" in result.out
    assert "exited with code 3" in result.out


def test_a_local_job_is_seen_by_every_command(torchx: Callable[..., Any]) -> None:
    handle = torchx("run", "utils.echo", "--msg", "hi").out.strip()
    assert f"{handle}  echo      SUCCEEDED" in torchx("list").out
    assert "State: SUCCEEDED" in torchx("status", handle).out
    assert "'args': ['hi']" in torchx("describe", handle).out
    assert torchx("delete", handle).code == 0
    assert torchx("status", handle).code == 1


# -- runopts ----------------------------------------------------------------------------------


def test_runopts_of_one_scheduler(call: Callable[..., Any], remote: Any) -> None:
    assert call("runopts", "remote").out == (
        "remote:\n"
        "    usage:\n"
        "        team=TEAM,[queue=QUEUE]\n"
        "\n"
        "    required arguments:\n"
        "        team=TEAM (str)\n"
        "            who pays\n"
        "\n"
        "    optional arguments:\n"
        "        queue=QUEUE (str, main)\n"
        "            where jobs wait\n"
        "\n"
    )
    data = json.loads(call("runopts", "--json", "remote").out)
    assert data["remote"]["options"][1] == {
        "name": "team",
        "type": "str",
        "required": True,
        "default": None,
        "help": "who pays",
    }


def test_what_makes_no_scheduler_is_named(
    call: Callable[..., Any],
    install: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    install("torchx.schedulers", "five", lambda session_name, **kwargs: 5)
    result = call("runopts")
    assert result.code == 0
    assert "five: scheduler `five` cannot be used: <entry point five = acme:target>" in result.out
    assert "local_cwd:\n    usage:" in result.out
    assert call("run", "-s", "five", "utils.echo").code == 1
    assert "makes a `int`, it must make a `torchx.schedulers.api.Scheduler`" in caplog.text


def test_options_of_a_scheduler_that_cannot_be_made_are_an_error(
    call: Callable[..., Any],
    install: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    install("torchx.schedulers", "five", lambda session_name, **kwargs: 5)
    result = call("runopts", "five")
    assert (result.code, result.out) == (1, "")
    assert "scheduler `five` cannot be used" in caplog.text
    assert json.loads(call("runopts", "--json", "five").out)["error"]["type"] == "TorchXError"


def test_a_scheduler_that_exits_does_not_hide_the_others(
    call: Callable[..., Any], install: Callable[..., None]
) -> None:
    def leave(session_name: str, **kwargs: object) -> Any:
        raise SystemExit(7)

    install("torchx.schedulers", "leaves", leave)
    install("torchx.schedulers", "gone", SystemExit(8))
    result = call("runopts")
    assert result.code == 0
    assert "leaves: it calls `sys.exit(7)`" in result.out
    assert "it calls `sys.exit(8)` while it is imported" in result.out
    assert "local_cwd:\n    usage:" in result.out


def test_a_scheduler_that_cannot_be_made_does_not_hide_the_others(
    call: Callable[..., Any], remote: Any, install: Callable[..., None]
) -> None:
    def fail(session_name: str, **kwargs: object) -> Any:
        raise RuntimeError("no license")

    install("torchx.schedulers", "acme", fail)
    result = call("runopts")
    assert result.code == 0
    assert "acme: no license\n" in result.out
    assert "local_cwd:\n    usage:" in result.out
    assert json.loads(call("runopts", "--json").out)["acme"]["error"]["message"] == "no license"


def test_an_unknown_scheduler_is_usage(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert call("runopts", "local_cw").code == 2
    assert "Did you mean `local_cwd`?" in caplog.text
    assert call("runopts", "a", "b").code == 2


# -- builtins ---------------------------------------------------------------------------------


def test_builtins_are_numbered(call: Callable[..., Any]) -> None:
    lines = call("builtins").out.splitlines()
    names = list(CmdBuiltins()._builtins())
    assert lines[0] == f"Found {len(names)} builtin components:"
    assert lines[1:] == [f" {i:2d}. {name}" for i, name in enumerate(names, start=1)]
    assert {"dist.ddp", "dist.spmd", "utils.echo", "utils.sh"} <= set(names)
    data = json.loads(call("builtins", "--json").out)
    assert [entry["name"] for entry in data["components"]] == names


def test_a_printed_component_can_be_run(call: Callable[..., Any]) -> None:
    for name in ("dist.ddp", "utils.echo"):
        source = call("builtins", "--print", name).out
        assert f"def {name.split('.')[1]}(" in source
    Path("mine.py").write_text(source)
    assert "'name': 'echo'" in call("run", "--dryrun", "mine.py:echo").out
    assert json.loads(call("builtins", "--json", "--print", name).out)["name"] == name


def test_an_unknown_component_is_an_error(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert call("builtins", "--print", "utils.ecko").code == 2
    assert "Did you mean `utils.echo`?" in caplog.text


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m torchx.cli.main builtins | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
