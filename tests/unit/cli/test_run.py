"""``torchx run``, on a scheduler of a plugin and on this machine."""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx.cli.cmd_run import LOCAL_SCHEDULER_WARNING_MSG, CmdRun
from torchx.runner import Runner
from torchx.specs import AppState

REMOTE = ["-s", "remote", "-cfg", "team=a"]


def sh(script: str) -> list[str]:
    """Arguments of `utils.sh` that run a script."""
    return ["--", "sh", "-c", script]


def stdin_json(monkeypatch: pytest.MonkeyPatch, data: object) -> None:
    text = data if isinstance(data, str) else json.dumps(data)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# -- dry run ----------------------------------------------------------------------------------


def test_a_dry_run_shows_app_and_request_and_submits_nothing(
    call: Callable[..., Any], remote: Any
) -> None:
    result = call("run", *REMOTE, "--dryrun", "utils.echo", "--msg", "hello")
    assert result.code == 0
    assert result.out.startswith("\n=== APPLICATION ===\n{ 'metadata': {},\n  'name': 'echo',")
    assert "\n\n=== SCHEDULER REQUEST ===\n{'app': 'echo', 'queue': 'main'}\n" in result.out
    assert "'TORCHX_JOB_ID': 'remote://torchx/${app_id}'" in result.out
    assert remote.jobs == {}


def test_a_dry_run_as_json(call: Callable[..., Any], remote: Any) -> None:
    data = json.loads(call("run", *REMOTE, "--dryrun", "--json", "utils.echo").out)
    assert list(data) == ["scheduler", "cfg", "app", "request"]
    assert data["scheduler"] == "remote"
    assert data["cfg"] == {"team": "a", "queue": "main"}
    assert data["app"]["roles"][0]["retry_policy"] == "APPLICATION"
    assert data["request"] == "{'app': 'echo', 'queue': 'main'}"
    local = json.loads(call("run", "--dryrun", "--json", "utils.echo").out)
    assert local["request"]["app_id"].startswith("echo-")


@pytest.mark.parametrize(
    ("cfg", "directive", "step"),
    [
        ("sbatch_args=--nodes=1 --ntasks-per-node=4", "--nodes=1", ""),
        ("srun_args=--wait=0", "", "--wait=0"),
        ("srun_args=--wait=0,partition=gpu", "--partition=gpu", "--wait=0"),
        ("sbatch_args=--constraint=a,b --nice=5;qos=high", "--constraint=a,b", ""),
    ],
)
def test_arguments_for_another_program_are_an_option_as_they_are(
    cfg: str, directive: str, step: str, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin-without-slurm")
    result = call("run", "--dryrun", "-s", "slurm", "--workspace=", "-cfg", cfg, "utils.echo")
    assert result.code == 0, result.err
    (line,) = [line for line in result.out.splitlines() if line.startswith("#SBATCH --job-name")]
    assert directive in line
    assert step in result.out


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_secrets_are_masked_unless_asked_for(
    more: list[str], call: Callable[..., Any], component_file: Path
) -> None:
    job = [f"{component_file}:sh", "--cmd", "true"]
    masked = call("run", "--dryrun", *more, *job).out
    assert "hush-hush" not in masked
    assert "***" in masked
    assert "seen" in masked
    assert "hush-hush" in call("run", "--dryrun", "--show-secrets", *more, *job).out


@pytest.mark.parametrize("secret", ["hush-hush", "key: 'it''s\nhush\"hush", "\\hush-hush"])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_secrets_that_the_scheduler_adds_are_masked(
    more: list[str], secret: str, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", secret)
    job = ["-s", "local_docker", "--workspace=", "-cfg", "copy_env=MY_*", "utils.echo"]
    masked = call("run", "--dryrun", *more, *job).out
    assert "hush" not in masked
    assert "MY_TOKEN" in masked
    assert "hush" in call("run", "--dryrun", "--show-secrets", *more, *job).out


def test_a_dry_run_forwards_the_parent_run(
    call: Callable[..., Any], remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    original = Runner.dryrun_component

    def note(self: Runner, *args: Any, **kwargs: Any) -> Any:
        seen.append({"args": args, **kwargs})
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Runner, "dryrun_component", note)
    assert call("run", *REMOTE, "--dryrun", "--parent_run_id", "X", "utils.echo").code == 0
    assert seen[0]["parent_run_id"] == "X"
    assert str(seen[0]["workspace"]) == os.getcwd()
    assert call("run", *REMOTE, "--dryrun", "--workspace", "", "utils.echo").code == 0
    assert seen[1]["workspace"] is None
    assert remote.jobs == {}


# -- submitting to a remote scheduler ---------------------------------------------------------


def test_a_remote_job_is_submitted_and_left_alone(
    call: Callable[..., Any], remote: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    remote.states = [AppState.PENDING]
    result = call("run", *REMOTE, "utils.echo")
    assert (result.code, result.out) == (0, "remote://torchx/echo-1\n")
    assert "remote://torchx/echo-1" in caplog.text
    assert "State: PENDING" in caplog.text
    assert remote.closed == 1
    assert remote.log_calls == []


def test_a_job_that_fails_at_once_is_no_failure_when_nobody_waits(
    call: Callable[..., Any], remote: Any
) -> None:
    remote.states = [AppState.FAILED]
    assert call("run", *REMOTE, "utils.echo").code == 0


@pytest.mark.parametrize(
    ("state", "code"),
    [(AppState.SUCCEEDED, 0), (AppState.FAILED, 1), (AppState.CANCELLED, 1)],
)
@pytest.mark.parametrize("flag", ["--wait", "--log"])
def test_waiting_ends_with_the_state_of_the_job(
    flag: str, state: AppState, code: int, call: Callable[..., Any], remote: Any
) -> None:
    remote.states = [AppState.SUBMITTED, state]
    result = call("run", *REMOTE, flag, "--json", "utils.echo")
    assert result.code == code
    assert json.loads(result.out) == {
        "handle": "remote://torchx/echo-1",
        "app_id": "echo-1",
        "scheduler": "remote",
        "state": state.name,
        "ui_url": "http://ui",
    }
    assert ("line of echo/0" in result.err) == (flag == "--log")


def test_a_failure_without_details_shows_the_status(
    call: Callable[..., Any], remote: Any, caplog: pytest.LogCaptureFixture
) -> None:
    remote.states = [AppState.FAILED]
    call("run", *REMOTE, "--wait", "utils.echo")
    assert "echo[0]:FAILED" in caplog.text
    assert "!!python" not in caplog.text


def test_a_job_that_the_scheduler_loses_is_an_error(
    call: Callable[..., Any],
    remote: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Runner, "wait", lambda *args, **kwargs: None)
    assert call("run", *REMOTE, "--wait", "utils.echo").code == 1
    assert "unknown status" in caplog.text


def test_tee_logs_follow_the_job(call: Callable[..., Any], remote: Any) -> None:
    result = call("run", *REMOTE, "--log", "--tee_logs", "utils.echo")
    assert result.code == 0
    assert "echo/0 line of echo/0\n" in result.err


def test_options_of_the_scheduler_come_from_flag_then_config(
    call: Callable[..., Any], remote: Any
) -> None:
    Path(".torchxconfig").write_text("[remote]\nteam = b\nqueue = slow\n")
    data = json.loads(call("run", "-s", "remote", "--dryrun", "--json", "utils.echo").out)
    assert data["cfg"] == {"team": "b", "queue": "slow"}
    data = json.loads(call("run", *REMOTE, "--dryrun", "--json", "utils.echo").out)
    assert data["cfg"] == {"team": "a", "queue": "slow"}


def test_component_scheduler_and_arguments_come_from_the_config(
    call: Callable[..., Any], remote: Any
) -> None:
    Path(".torchxconfig").write_text(
        "[cli:run]\ncomponent = utils.echo\nscheduler = remote\ndryrun = true\njson = on\n"
        "[remote]\nteam = b\n[component:utils.echo]\nmsg = from config\n"
    )
    role = json.loads(call("run").out)["app"]["roles"][0]
    assert role["args"] == ["from config"]
    for argv in (["--msg", "given"], ["--", "--msg", "given"]):
        assert json.loads(call("run", *argv).out)["app"]["roles"][0]["args"] == ["given"]


def test_an_unknown_scheduler_in_the_config_is_usage_that_names_it(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    Path(".torchxconfig").write_text("[cli:run]\nscheduler = local_cw\n")
    assert call("run", "utils.echo").code == 2
    assert "section [cli:run] of .torchxconfig" in caplog.text
    assert "Did you mean `local_cwd`?" in caplog.text


def test_the_context_is_set_and_kept(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_CONTEXT_NAME", "mine")
    call("run", "--dryrun", "utils.echo")
    assert os.environ["TORCHX_CONTEXT_NAME"] == "mine"
    monkeypatch.delenv("TORCHX_CONTEXT_NAME")
    call("run", "--dryrun", "utils.echo")
    assert os.environ["TORCHX_CONTEXT_NAME"] == "cli_run"


def test_the_scheduler_local_is_deprecated(
    call: Callable[..., Any],
    install: Callable[..., None],
    remote: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    install("torchx.schedulers", "local", lambda session_name, **kwargs: remote)
    call("run", "-s", "local", "-cfg", "team=a", "--dryrun", "utils.echo")
    assert LOCAL_SCHEDULER_WARNING_MSG in caplog.text


# -- what users get wrong ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["utils.ecko"], 2, ["utils.ecko", "Did you mean `utils.echo`?"]),
        (["nope.comp"], 2, ["nope.comp"]),
        (["nofile.py:f"], 2, ["nofile.py:f", "does not exist"]),
        (["FILE:nope"], 2, ["FILE:nope", "does not exist"]),
        (["FILE:broken"], 1, ["broken", "Missing type annotation"]),
        (["FILE:raises"], 1, ["RuntimeError: out of ideas"]),
        (["FILE:not_an_app"], 1, ["`AppDef`", "int"]),
        (["a:b:c"], 2, ["a:b:c"]),
        (["-cfg", "bogus", "utils.echo"], 2, ["-cfg bogus", "torchx runopts local_cwd"]),
        (["-cfg", "prepend_cwd=maybe", "utils.echo"], 2, ["prepend_cwd", "maybe", "true/1/yes/on"]),
        (["-s", "remote", "utils.echo"], 2, ["team", "-cfg", ".torchxconfig", "runopts remote"]),
        (["-s", "local_cwd", "-s", "local_cwd", "utils.echo"], 2, ["-s"]),
        (["-cfg", "a=b", "-cfg", "a=b", "utils.echo"], 2, ["-cfg"]),
        (["--parent_run_id", "a", "--parent_run_id", "b", "u.e"], 2, ["--parent_run_id"]),
        (["-s", "nope", "utils.echo"], 2, ["invalid choice: 'nope'"]),
        (["-s", "local_cw", "utils.echo"], 2, ["Did you mean `local_cwd`?"]),
        (["-s", "local_cwd"], 2, ["missing component name"]),
        (["utils.echo", "--bogus", "1"], 2, ["usage: torchx run", "--bogus"]),
        (["FILE:sh"], 2, ["--cmd"]),
        (["FILE:sh", "--cmd", "x", "--n", "y"], 2, ["invalid int value: 'y'"]),
    ],
)  # fmt: skip
def test_mistakes_get_a_message_a_code_and_no_traceback(
    argv: list[str],
    code: int,
    words: list[str],
    call: Callable[..., Any],
    remote: Any,
    component_file: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    argv = [word.replace("FILE", str(component_file)) for word in argv]
    result = call("run", *argv)
    records = [r.getMessage() for r in caplog.records if not r.name.startswith("torchx-events")]
    text = "\n".join([result.err, *records])
    assert result.code == code
    for word in words:
        assert word.replace("FILE", str(component_file)) in text
    assert "Traceback" not in text
    assert result.out == ""
    assert remote.jobs == {}
    as_json = call("run", "--json", *argv)
    assert as_json.code == code
    assert json.loads(as_json.out)["error"]["message"]


def test_an_unknown_option_of_the_scheduler_is_a_warning(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    result = call("run", "--dryrun", "--json", "-cfg", "prepend_cw=true", "utils.echo")
    assert json.loads(result.out)["cfg"]["prepend_cwd"] is False
    for word in ("`prepend_cw`", "grace_s", "Did you mean `prepend_cwd`?"):
        assert word in caplog.text


def test_help_of_a_component_submits_nothing(call: Callable[..., Any]) -> None:
    result = call("run", "utils.echo", "--help")
    assert result.code == 0
    assert "--msg" in result.out


def test_run_raises_system_exit_without_the_root_parser(caplog: pytest.LogCaptureFixture) -> None:
    cmd, parser = CmdRun(), argparse.ArgumentParser()
    cmd.add_arguments(parser)
    for component in ("nope", "nofile.py:f"):
        with pytest.raises(SystemExit) as ended:
            cmd.run(parser.parse_args([component]))
        assert ended.value.code == 2
        assert component in caplog.text


ENDS_AT_IMPORT = "import sys\nsys.exit(0)\n"
ENDS_WHEN_CALLED = """
import sys
import torchx.specs as specs
def job() -> specs.AppDef:
    sys.exit(5)
"""
FAILS = """
import torchx.specs as specs
def job() -> specs.AppDef:
    return inner()
def inner() -> specs.AppDef:
    raise RuntimeError("boom")
"""
SHADOWS_HELP = """
import torchx.specs as specs
def job(help: str = "x") -> specs.AppDef:
    return specs.AppDef("job", [specs.Role("w", "", entrypoint="true")])
"""


@pytest.mark.parametrize("flags", [[], ["--json"], ["--dryrun"]])
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (ENDS_AT_IMPORT, ["bad.py` calls `sys.exit(0)`", "raises an error"]),
        (ENDS_WHEN_CALLED, ["component `job` calls `sys.exit(5)`"]),
        (FAILS, ["RuntimeError: boom", "bad.py:6, in `inner`"]),
        ("import nosuchmodule\n", ["No module named 'nosuchmodule'", "bad.py:1"]),
        (SHADOWS_HELP, ["parameter `help` of component `job` needs another name"]),
    ],
)
def test_a_bug_of_a_component_is_told_with_its_place(
    flags: list[str],
    source: str,
    words: list[str],
    call: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    Path("bad.py").write_text(source)
    result = call("run", *flags, "bad.py:job")
    assert result.code == 1
    for word in words:
        assert word in caplog.text
    assert ("error" in json.loads(result.out)) if "--json" in flags else result.out == ""


def test_what_a_component_prints_is_no_part_of_the_result(
    call: Callable[..., Any], remote: Any
) -> None:
    Path("talks.py").write_text(
        "import torchx.specs as specs\n"
        "print('being imported')\n"
        "def job() -> specs.AppDef:\n"
        "    print('being called')\n"
        "    return specs.AppDef('job', [specs.Role('w', '', entrypoint='true',\n"
        "                                           resource=specs.Resource(1, 0, 1))])\n"
    )
    result = call("run", *REMOTE, "talks.py:job")
    assert result.out == "remote://torchx/job-1\n"
    assert "being imported\nbeing called\n" in result.err
    assert json.loads(call("run", *REMOTE, "--json", "talks.py:job").out)["app_id"] == "job-2"


def test_a_dry_run_shows_the_option_that_a_flag_stands_for(call: Callable[..., Any]) -> None:
    result = call("run", "--dryrun", "--detach", "--json", "utils.echo")
    assert json.loads(result.out)["cfg"]["detach"] is True


def test_output_that_cannot_be_written_is_told(torchx: Callable[..., Any]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = f"{sys.executable} -m torchx.cli.main run --dryrun utils.echo > /dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1
    assert "the output cannot be written: No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize("level", [[], ["--log_level", "DEBUG"]])
def test_errors_and_records_show_no_secret(
    flags: list[str],
    level: list[str],
    torchx: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GH_PAT", "hush-of-environment")
    Path("talks.py").write_text(
        "import os\n"
        "import torchx.specs as specs\n"
        "def job(url: str, env: dict[str, str]) -> specs.AppDef:\n"
        "    raise ValueError(f\"{url} {env} {os.environ['GH_PAT']}\")\n"
    )
    job = ["--url", "redis://:hush@h/0", "--env", "MYPASS=hush-of-arguments"]
    result = torchx(*level, "run", *flags, "talks.py:job", *job)
    assert result.code == 1
    assert "redis://:***@h/0" in result.err
    assert "talks.py:4, in `job`" in result.err
    assert "hush" not in result.out + result.err


# -- stdin ------------------------------------------------------------------------------------

JOB: dict[str, Any] = {
    "component_name": "utils.echo",
    "scheduler": "remote",
    "scheduler_args": {"team": "a"},
    "component_args": {"msg": "yo"},
}


def test_a_run_from_stdin(
    call: Callable[..., Any], remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin_json(monkeypatch, JOB)
    data = json.loads(call("run", "--stdin", "--json").out)
    assert data["handle"] == "remote://torchx/echo-1"
    assert remote.jobs["echo-1"].roles[0].args == ["yo"]


def test_tokens_on_stdin_win_over_named_arguments(
    call: Callable[..., Any], remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin_json(monkeypatch, {**JOB, "component_args_str": ["--msg", "tokens"], "dryrun": False})
    data = json.loads(call("run", "--stdin", "--json", "--dryrun").out)
    assert data["app"]["roles"][0]["args"] == ["tokens"]
    assert remote.jobs == {}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("", ["valid JSON"]),
        ("{", ["valid JSON"]),
        ("[1]", ["JSON object", "list"]),
        ({"scheduler": "remote"}, ["fields are missing: component_name, scheduler_args"]),
        ({**JOB, "scheduler_args": {"teem": "a"}}, ["teem"]),
        ({**JOB, "component_args": {"mgs": "x"}}, ["mgs", "Did you mean `msg`?"]),
        ({**JOB, "component_args": {"num_replicas": "2"}}, ["num_replicas", "'2'"]),
        ({**JOB, "component_name": "utils.ecko"}, ["utils.ecko"]),
        ({**JOB, "scheduler": "nope"}, ["nope"]),
    ],
)
@pytest.mark.parametrize("more", [[], ["--dryrun"]])
def test_bad_json_is_usage(
    data: object,
    words: list[str],
    more: list[str],
    call: Callable[..., Any],
    remote: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stdin_json(monkeypatch, data)
    result = call("run", "--stdin", *more)
    assert (result.code, result.out) == (2, "")
    for word in words:
        assert word in caplog.text
    assert remote.jobs == {}


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["-cfg", "a=b"], ["--scheduler_args"]),
        (["-s", "slurm", "--wait"], ["--scheduler", "--wait"]),
        (["utils.echo"], ["COMPONENT [ARGS]"]),
        (["--parent_run_id", "x"], ["--parent_run_id"]),
    ],
)
def test_flags_beside_stdin_are_usage(
    argv: list[str], names: list[str], call: Callable[..., Any]
) -> None:
    result = call("run", "--stdin", *argv)
    assert result.code == 2
    assert "must come from JSON" in result.err
    for name in names:
        assert name in result.err


def test_a_flag_with_its_default_value_is_no_conflict(
    call: Callable[..., Any], remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin_json(monkeypatch, JOB)
    assert call("run", "--stdin", "-s", "local_cwd").code == 0


def test_stdin_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin_json(monkeypatch, JOB)
    cmd = CmdRun()
    assert cmd.torchx_json_from_stdin() == JOB
    assert cmd.torchx_json_from_stdin(argparse.Namespace(dryrun=True)) == {**JOB, "dryrun": True}


# -- on this machine --------------------------------------------------------------------------


def test_a_local_job_streams_its_lines_before_it_is_finished(torchx: Callable[..., Any]) -> None:
    result = torchx("run", "utils.sh", "--num_replicas", "2", *sh("echo out; echo err >&2"))
    handle = result.out.strip()
    assert result.code == 0
    assert result.out == f"{handle}\n"
    assert handle.startswith("local_cwd://torchx/sh-")
    lines = result.err.splitlines()
    for expected in ("sh/0 out", "sh/1 out", "sh/0 err", "sh/1 err"):
        assert expected in lines
    assert lines[-1].endswith("job finished: SUCCEEDED")
    assert "launched app" in lines[0]


def test_a_failed_job_ends_with_a_summary(torchx: Callable[..., Any]) -> None:
    result = torchx("run", "utils.sh", *sh("echo last words >&2; exit 3"))
    assert result.code == 1
    summary = result.err[result.err.index("ERROR") :]
    for word in ("FAILED", "sh/0", "3", "| last words", "log: /"):
        assert word in summary
    log = summary.split("log: ")[1].split()[0]
    assert "last words" in Path(log).read_text()
    as_json = torchx("run", "--json", "utils.sh", *sh("exit 3"))
    assert as_json.code == 1
    assert json.loads(as_json.out)["state"] == "FAILED"


def test_a_last_line_without_newline_keeps_the_record_on_its_own(
    torchx: Callable[..., Any],
) -> None:
    result = torchx("run", "utils.sh", *sh("printf unfinished"))
    assert "sh/0 unfinished\ntorchx " in result.err


def test_components_in_files_run_and_know_their_context(
    torchx: Callable[..., Any], component_file: Path
) -> None:
    os.chdir(component_file.parent)
    for path in (str(component_file), "jobs.py", "./jobs.py"):
        result = torchx("run", f"{path}:sh", "--cmd", 'echo "$TAGS" > done', "--tags", "x,y")
        assert result.code == 0, result.err
        assert Path("done").read_text() == "['x', 'y']\n"
        Path("done").unlink()


def start(*argv: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "torchx.cli.main", "run", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_signal_ends_the_attached_job_and_says_so(
    number: signal.Signals, code: int, as_json: bool, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    more = ["--json"] if as_json else []
    process = start(*more, "utils.sh", *sh(f"echo $$$$ > {pid_file}; exec sleep 60"))
    wait_for(lambda: pid_file.exists() and bool(pid_file.read_text()))
    assert process.stderr is not None
    assert "launched app" in process.stderr.readline()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert "was cancelled" in last
    assert number.name in last
    if as_json:
        assert json.loads(out)["error"]["type"] == "Interrupted"
    assert not alive(int(pid_file.read_text()))


@pytest.mark.parametrize("how", [["--detach"], ["--no-wait"], ["-cfg", "detach=true"]])
def test_a_detached_job_goes_on_by_itself(
    how: list[str], torchx: Callable[..., Any], tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    result = torchx("run", *how, "utils.sh", "cat", str(fifo))
    handle = result.out.strip()
    assert result.code == 0
    assert f"torchx log -f {handle}" in result.err
    assert "State: RUNNING" in torchx("status", handle).out
    fifo.write_text("hello\n")
    assert torchx("log", "-t", handle).out == "sh/0 hello\n"
    done = torchx("status", "--wait", "--exit-status", "--json", handle)
    assert (done.code, json.loads(done.out)["state"]) == (0, "SUCCEEDED")


def test_ctrl_c_leaves_a_remote_job_alone(
    call: Callable[..., Any],
    remote: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(Runner, "wait", interrupted)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert call("run", *REMOTE, "--wait", "utils.echo").code == 143
    assert "keeps running" in caplog.text
    assert "torchx cancel remote://torchx/echo-1" in caplog.text
    assert remote.closed == 1
    assert remote.states == [AppState.SUCCEEDED]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_closes_the_runner_and_propagates_from_the_command(
    remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "wait", interrupted)
    cmd, parser = CmdRun(), argparse.ArgumentParser()
    cmd.add_arguments(parser)
    with pytest.raises(KeyboardInterrupt):
        cmd.run(parser.parse_args([*REMOTE, "--wait", "utils.echo"]))
    assert remote.closed == 1
