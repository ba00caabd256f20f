"""How commands look on terminals of any size, and that elsewhere they are plain."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.terminal import ESCAPES, on_terminal, python_on_terminal
from torchx._launches import note_launch
from torchx.runner import Runner
from torchx.runner._watching import FailureWatch
from torchx.schedulers._core.exits import exception_json
from torchx.schedulers.api import AppSnapshot, ReplicaSnapshot, Scheduler
from torchx.schedulers.causes import Cause, Rule
from torchx.specs import AppState

WIDTHS = [20, 33, 60, 80, 120, 200]


@pytest.fixture
def roles(tmp_path: Path) -> str:
    """A component of three roles, whose trainers may fail."""
    path = tmp_path / "train.py"
    (tmp_path / "fail.py").write_text(
        "def step():\n    raise ValueError('loss is NaN')\nprint('epoch 0')\nstep()\n"
    )
    path.write_text(
        "import torchx.specs as specs\n"
        "def train(bad: bool = False) -> specs.AppDef:\n"
        "    def role(name, count, script):\n"
        "        return specs.Role(name, '', entrypoint='sh', args=['-c', script],\n"
        "                          num_replicas=count, resource=specs.Resource(1, 0, 64))\n"
        f"    script = '{sys.executable} {tmp_path}/fail.py' if bad else 'echo epoch 0'\n"
        "    return specs.AppDef('train', [role('reader', 1, 'echo batch'),\n"
        "        role('trainer', 2, script), role('evaluator', 1, 'echo accuracy')])\n"
    )
    return f"{path}:train"


@pytest.fixture
def failed(roles: str, call: Callable[..., Any]) -> str:
    """The app id of a job of three roles that failed."""
    return str(call("run", roles, "--bad", "true").out).strip().rpartition("/")[2]


# -- run ------------------------------------------------------------------------------------------


def test_a_run_of_three_roles(roles: str) -> None:
    screen = on_terminal("run", roles)
    assert screen.code == 0
    first, *middle, last = screen.lines
    assert re.fullmatch(r"● local_cwd://torchx/train-\w+", first)
    assert sorted(middle) == [
        "evaluator/0 │ accuracy",
        "reader/0    │ batch",
        "trainer/0   │ epoch 0",
        "trainer/1   │ epoch 0",
    ]
    assert re.fullmatch(r"✓ train-\w+ SUCCEEDED after \d+\.\ds", last)
    assert screen.text.count("local_cwd://") == 1


def test_every_replica_has_a_colour_that_stays(roles: str) -> None:
    def colours() -> dict[str, str]:
        raw = on_terminal("run", roles).raw
        return {name: code for code, name in re.findall(r"\033\[(\d+)m(\w+/\d)", raw)}

    found = colours()
    assert len(found) == len(set(found.values())) == 4
    assert colours() == found


def test_a_run_that_fails_names_the_cause_and_the_next_command(roles: str) -> None:
    screen = on_terminal("run", roles, "--bad", "true")
    assert screen.code == 1
    end = screen.text[screen.text.rindex("✗ train-") :]
    assert re.match(r"✗ train-\w+ FAILED after", end)
    assert "app-error: trainer/" in end
    assert "ValueError: loss is NaN" in end
    assert "at fail.py:2 in step" in end
    command = re.search(r"→ (torchx log \S+ trainer/\d)", end)
    assert command is not None
    assert "loss is NaN" in on_terminal(*command[1].split()[1:]).text
    assert re.search(r"\d\d:\d\d:\d\d", screen.text) is None


def test_a_status_names_the_exception_and_its_place_before_the_replicas(failed: str) -> None:
    screen = on_terminal("status", failed, columns=120)
    first, cause, place, *_ = screen.lines
    assert first.startswith(f"✗ {failed} FAILED")
    assert "ValueError: loss is NaN" in cause
    assert place.strip() == "at fail.py:2 in step"


def test_the_handle_alone_goes_into_a_pipe(roles: str) -> None:
    read, write = os.pipe()
    screen = on_terminal("run", roles, stdout=write)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert re.fullmatch(r"local_cwd://torchx/train-\w+\n", pipe.read())
    assert re.match(r"● train-\w+ local_cwd\n", screen.text)


def test_a_quiet_run_shows_the_job_alone(roles: str) -> None:
    lines = on_terminal("run", "-q", roles).lines
    assert len(lines) == 5
    assert "SUCCEEDED" not in "".join(lines)


def test_debug_shows_times_and_levels(roles: str) -> None:
    text = on_terminal("--log_level", "DEBUG", "run", roles).text
    assert re.search(r"torchx \d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO     launched app", text)


def test_an_error_is_one_line_with_a_sign() -> None:
    screen = on_terminal("status", "nope")
    assert screen.code == 2
    assert screen.lines[0].startswith("✗ no app launched from here has an id that begins with")


# -- looking --------------------------------------------------------------------------------------

LOOKS = [
    ["list"],
    ["list", "--all"],
    ["status"],
    ["describe"],
    ["why"],
    ["log"],
    ["builtins"],
    ["runopts", "local_cwd"],
    ["doctor", "-s", "local_cwd"],
    ["--help"],
    ["run", "--help"],
]


@pytest.mark.parametrize("argv", LOOKS, ids=" ".join)
def test_nothing_fails_on_a_terminal_of_any_width(argv: list[str], failed: str) -> None:
    for columns in (20, 200):
        screen = on_terminal(*argv, columns=columns)
        assert screen.code == 0, screen.text
        assert not any(line.startswith("Traceback") for line in screen.lines)


@pytest.mark.parametrize("columns", WIDTHS)
def test_tables_fit_the_terminal(columns: int, failed: str) -> None:
    lines = on_terminal("list", columns=columns).lines
    assert lines[0].startswith("APP")
    assert max(map(len, lines)) <= columns
    table = [line for line in on_terminal("status", columns=columns).lines if "trainer/" in line]
    assert max(map(len, table)) <= max(columns, len(f"→ torchx log {failed} trainer/0"))


def test_a_list_shows_the_latest_and_says_what_is_left(failed: str) -> None:
    (row,) = [line for line in on_terminal("list").lines if failed in line]
    assert re.fullmatch(rf"{failed}  FAILED  +2/4  +\d+s  +\d+\.\ds", row)
    lines = on_terminal("list", "-n", "0").lines
    assert lines[-1] == "and 1 more: torchx list --all"


def test_states_have_colours(failed: str) -> None:
    assert "\033[31mFAILED\033[0m" in on_terminal("list").raw
    assert "\033[31mFAILED\033[0m" in on_terminal("status").raw


@pytest.mark.parametrize("argv", LOOKS, ids=" ".join)
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no-color", "dumb"])
def test_no_colours_where_none_are_wanted(
    argv: list[str], env: dict[str, str], failed: str
) -> None:
    assert "\033" not in on_terminal(*argv, env=env).raw


def test_a_terminal_that_cannot_write_signs_gets_letters(failed: str) -> None:
    screen = on_terminal("status", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert screen.code == 0
    assert screen.lines[0].startswith(f"x {failed} FAILED")
    assert screen.text.isascii()


# -- elsewhere ------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", LOOKS, ids=" ".join)
def test_off_a_terminal_there_are_neither_colours_nor_signs(
    argv: list[str], failed: str, torchx: Callable[..., Any]
) -> None:
    result = torchx(*argv)
    assert result.code == 0
    assert ESCAPES.search(result.out + result.err) is None
    assert not set("●✓✗○│") & set(result.out)


def test_off_a_terminal_a_list_is_whole_and_begins_with_the_handle(
    failed: str, call: Callable[..., Any]
) -> None:
    for _ in range(21):
        call("run", "utils.echo")
    lines = call("list").out.splitlines()
    assert len(lines) == 2 + 22
    assert all(line.startswith("local_cwd://torchx/") for line in lines[2:])
    assert len(call("list", "-n", "3").out.splitlines()) == 2 + 3
    shown = on_terminal("list").lines
    assert len(shown) == 1 + 20 + 1
    assert shown[-1] == "and 2 more: torchx list --all"


def test_forms_of_a_list(failed: str, call: Callable[..., Any]) -> None:
    import yaml

    handle = f"local_cwd://torchx/{failed}"
    assert call("list", "-o", "name").out == call("ps", "-q").out == f"{handle}\n"
    assert call("list", "-o", "json").out == call("list", "--json").out
    assert yaml.safe_load(call("list", "-o", "yaml").out)[0]["handle"] == handle
    assert handle in on_terminal("list", "-o", "wide", columns=40).text


@pytest.mark.parametrize("argv", [["list"], ["builtins"], ["runopts"], ["status"], ["why"]])
def test_a_reader_that_goes_away_is_no_error(argv: list[str], failed: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "torchx.cli.main", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as stderr:
        assert "Traceback" not in stderr.read()
    assert process.wait(60) in (0, 1)


def test_a_failure_is_told_with_its_exception_in_the_moment_it_happens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = 'Traceback\n  File "/app/train.py", line 41, in step\nValueError: loss is NaN'
    error = exception_json("ValueError: loss is NaN", trace, 1, 0)
    failed = ReplicaSnapshot("worker", 1, AppState.FAILED, exit_code=1, error=error)

    class Ending:
        def end_after_failure(self, app_id: str) -> ReplicaSnapshot:
            return failed

    watch = FailureWatch(Ending(), "a")  # type: ignore[arg-type]  # all that it asks for
    watch.look()
    watch.look()
    assert caplog.messages == [
        "replica worker/1 exited with code 1: ValueError: loss is NaN (/app/train.py:41 in step);"
        " ending the other replicas"
    ]


def test_handles_that_are_gone_say_so_in_one_line() -> None:
    note_launch("local_cwd://torchx/gone-1")
    screen = on_terminal("status", columns=200)
    assert screen.code == 1
    assert "does not exist on scheduler `local_cwd`" in screen.lines[0]


# -- what takes long ------------------------------------------------------------------------------

BUILD = """
import logging, sys
from torchx.cli import _output
_output.configure_logging(logging.INFO)
log = logging.getLogger("torchx.workspace.docker")
for step in range(1, 4):
    log.info("Step %d/3 : RUN something", step)
logging.getLogger("torchx.workspace.api").info("built", extra={"calm_text": "built image abc"})
logging.getLogger("torchx.runner.api").info("gets workspace", extra={"calm_text": ""})
_output.out("the handle")
log.warning("a warning stays")
log.info("Step 9/9 : passes")
_output.say("the end")
"""


def test_a_build_is_one_line_that_goes_away() -> None:
    screen = python_on_terminal(BUILD)
    assert screen.code == 0
    assert "Step 2/3" in screen.raw
    left = [line.rpartition("\r")[2] for line in screen.text.rstrip("\n").split("\n")]
    assert re.fullmatch(r"built image abc \(0\.\ds\)", left[0])
    assert left[1:] == ["the handle", "! a warning stays", "the end"]


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"COLUMNS": "20"}])
def test_steps_of_a_build_on_lesser_terminals(env: dict[str, str]) -> None:
    screen = python_on_terminal(BUILD, env=env)
    assert screen.code == 0
    assert "the end" in screen.lines[-1]
    if env.get("TERM") == "dumb":
        assert "\r" not in screen.raw
        assert screen.lines[0] == "Step 1/3 : RUN something"


def test_a_wait_is_told_with_its_cause_and_when_it_changes(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    words = "Unschedulable: 1 Insufficient cpu"
    replicas = [ReplicaSnapshot("w", 0, AppState.PENDING, reason=words)]

    class Waiting(Scheduler[Any]):
        looks = 0

        def _submit_dryrun(self, app: Any, cfg: Any) -> Any: ...
        def schedule(self, dryrun_info: Any) -> str:
            return "a"

        def look(self, app_id: str) -> AppSnapshot:
            self.looks += 1
            if self.looks < 3:
                return AppSnapshot("a", tuple(replicas), message=replicas[0].reason)
            state = AppState.RUNNING if self.looks == 3 else AppState.SUCCEEDED
            return AppSnapshot("a", (ReplicaSnapshot("w", 0, state),))

        def cause_rules(self) -> list[Rule]:
            return [Rule(Cause.UNSCHEDULABLE, r"Insufficient (?P<what>\w+)", "no {what} is free")]

    caplog.set_level("INFO", "torchx.runner.api")
    scheduler = Waiting("waits", "s")
    with Runner("s", {"waits": lambda session_name, **_: scheduler}) as runner:
        status = runner.wait("waits://s/a", wait_interval=0.01)
    assert status is not None
    assert scheduler.looks == 4  # one for each state, none for the causes
    records = [r.getMessage() for r in caplog.records if r.name == "torchx.runner.api"]
    assert records == [
        f"`waits://s/a` is PENDING: unschedulable: no cpu is free ({words})",
        "`waits://s/a` is RUNNING",
    ]
