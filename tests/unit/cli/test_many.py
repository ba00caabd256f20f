"""``torchx cancel`` and ``torchx delete`` of many apps."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx.specs import AppState
from torchx.testing._contract.inside import Terminal

Torchx = Callable[..., Any]


@pytest.fixture
def start(torchx: Torchx, component_file: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(component_file.parent)
    component_file.write_text(
        component_file.read_text() + "def named(name: str, cmd: str) -> specs.AppDef:\n"
        "    role = specs.Role('work', '', entrypoint='sh', args=['-c', cmd])\n"
        "    return specs.AppDef(name, [role])\n"
    )

    def start(name: str, cmd: str = "sleep 60") -> str:
        flags = ["--detach"] if cmd.startswith("sleep") else []
        done = torchx("run", *flags, "jobs.py:named", "--name", name, "--cmd", cmd)
        assert done.out, done.err
        return str(done.out.strip())

    return start


def states(torchx: Torchx) -> dict[str, str]:
    """States by the names of the apps."""
    return {row["name"]: row["state"] for row in json.loads(torchx("list", "--json").out)}


def test_a_pattern_cancels_those_that_run_and_no_others(torchx: Torchx, start: Any) -> None:
    for name, cmd in [("sweep-a", "sleep 60"), ("sweep-b", "sleep 60"), ("other", "sleep 60")]:
        start(name, cmd)
    start("sweep-done", "true")
    done = torchx("cancel", "--yes", "--wait", "--json", "sweep-*")
    assert done.code == 0, done.err
    assert {row["state"] for row in json.loads(done.out)} == {"CANCELLED"}
    assert len(json.loads(done.out)) == 2
    found = states(torchx)
    assert found == {
        "sweep-a": "CANCELLED",
        "sweep-b": "CANCELLED",
        "sweep-done": "SUCCEEDED",
        "other": "RUNNING",
    }
    assert torchx("delete", "--all", "--yes").code == 0
    assert states(torchx) == {}


def test_several_handles_need_no_question(torchx: Torchx, start: Any) -> None:
    handles = [start("one"), start("two")]
    done = torchx("cancel", *handles)
    assert (done.code, done.out) == (0, "")
    assert "2 apps being cancelled" in done.err
    done = torchx("delete", handles[0], handles[1], "local_cwd://torchx/gone-x1")
    assert done.code == 1
    assert "app `gone-x1` does not exist on scheduler `local_cwd`" in done.err
    assert "2 apps deleted" in done.err


def test_states_and_ages_choose(torchx: Torchx, start: Any) -> None:
    start("good", "true")
    start("bad", "false")
    assert torchx("delete", "--state", "failed", "--older-than", "1h", "--yes").code == 0
    assert states(torchx) == {"good": "SUCCEEDED", "bad": "FAILED"}
    assert torchx("delete", "--state", "failed", "--older-than", "0s", "--yes").code == 0
    assert states(torchx) == {"good": "SUCCEEDED"}
    done = torchx("cancel", "--all", "--yes")
    assert (done.code, done.out) == (0, "")
    assert "0 apps being cancelled" in done.err
    torchx("delete", "--all", "--yes")


def test_without_a_terminal_and_yes_nothing_is_done(torchx: Torchx, start: Any) -> None:
    handle = start("keep", "true")
    done = torchx("delete", "--all")
    assert done.code == 2
    assert "delete 1 app: give `--yes`" in done.err
    assert handle in done.err
    assert states(torchx) == {"keep": "SUCCEEDED"}
    torchx("delete", handle)


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_on_a_terminal_people_are_asked(torchx: Torchx, start: Any, answer: str, left: int) -> None:
    start("asked", "true")
    shown = Terminal()
    shown.type(answer)
    streams = {"stdin": shown.slave, "stdout": shown.slave, "stderr": shown.slave}
    command = [sys.executable, "-m", "torchx.cli.main", "delete", "asked*"]
    done = subprocess.run(command, timeout=60, check=False, **streams)
    assert "delete 1 app? [y/N]" in shown.close()
    assert done.returncode == left
    assert len(states(torchx)) == left
    torchx("delete", "--all", "--yes")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing-*", "--yes"], "no app of `local_cwd` matches `nothing-*`"),
        (["*", "--yes"], "`*` matches all 1 apps of `local_cwd`: use `--all`"),
        (["local_cwd://*/*", "--yes"], "matches all 1 apps"),
        ([], "give handles or patterns, or filters"),
        (["--all", "keep*"], "give either handles or patterns, or `--all`"),
        (["--state", "FAILED", "local_cwd://torchx/a"], "filter apps"),
        (["local_cwd://torchx/a", "bogus-id"], "no app launched from here"),
        (["--state", "WRONG"], "`WRONG` is not a state"),
        (["--older-than", "soon"], "`soon` is not a time"),
        (["nowhere://*/x*", "--yes"], "nowhere"),
    ],
)
def test_bad_choices_are_told_and_nothing_is_done(
    torchx: Torchx, start: Any, words: list[str], told: str
) -> None:
    start("keep", "true")
    for command in ("delete", "cancel"):
        done = torchx(command, *words)
        assert done.code == 2, done.err
        assert told in done.err
        assert "Traceback" not in done.err
    assert states(torchx) == {"keep": "SUCCEEDED"}
    torchx("delete", "--all", "--yes")


def test_a_scheduler_with_verbs_alone_is_asked_one_by_one(
    call: Callable[..., Any], remote: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    from torchx.specs import AppDef, Role

    remote.jobs = {f"job-{i}": AppDef("n", [Role("r", "")]) for i in range(2)}
    remote.states = [AppState.RUNNING]
    done = call("delete", "-s", "remote", "-cfg", "team=a", "--all", "--yes")
    assert done.code == 0
    assert remote.jobs == {}
    assert "2 apps deleted" in caplog.text
