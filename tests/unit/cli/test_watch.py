"""``torchx status --watch`` and ``torchx list --watch``."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.terminal import ESCAPES, on_terminal, python_on_terminal
from torchx.cli._watch import changes
from torchx.components.utils import sh
from torchx.errors import UnknownAppException
from torchx.runner import get_runner
from torchx.schedulers.api import AppSnapshot
from torchx.specs import AppState
from torchx.testing._contract.inside import Terminal

Torchx = Callable[..., Any]
COMMAND = [sys.executable, "-m", "torchx.cli.main"]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The job ends when it is there."""
    return tmp_path / "gate"


@pytest.fixture
def handle(torchx: Torchx, component_file: Path, gate: Path) -> Iterator[str]:
    script = f"until [ -e {gate} ]; do sleep 0.05; done; exit 3"
    started = torchx("run", "--detach", f"{component_file}:sh", "--cmd", script)
    yield started.out.strip()
    gate.touch()
    torchx("delete", started.out.strip())


def watching(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)


def test_off_a_terminal_each_change_is_a_line(handle: str, gate: Path) -> None:
    app_id = handle.rpartition("/")[2]
    with watching("status", "--watch", "--exit-status", handle) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{app_id} work/0 RUNNING\n"
        assert process.stdout.readline() == f"{app_id} RUNNING\n"
        gate.touch()
        assert process.stdout.readline() == f"{app_id} work/0 FAILED exited with code 3\n"
        assert process.stdout.read() == f"{app_id} FAILED replica work/0 exited with code 3\n"
    assert process.returncode == 1


def test_on_a_terminal_it_is_drawn_again_in_place(handle: str, gate: Path) -> None:
    shown = Terminal()
    streams = {"stdin": shown.slave, "stdout": shown.slave, "stderr": shown.slave}
    with subprocess.Popen([*COMMAND, "status", "--watch", handle], **streams) as process:
        wait_until(lambda: "RUNNING" in shown.text)
        gate.touch()
    text = shown.close()
    assert process.returncode == 0
    assert "\033[J" in text
    assert "FAILED" in text.rpartition("\033[J")[2]
    assert "RUNNING" not in text.rpartition("\033[J")[2]


def test_json_is_a_document_for_each_change(handle: str, gate: Path) -> None:
    with watching("status", "--watch", "--json", handle) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["state"] == "RUNNING"
        gate.touch()
        assert json.loads(process.stdout.read().splitlines()[-1])["state"] == "FAILED"


def test_a_list_tells_what_is_new_and_what_has_ended(
    torchx: Torchx, handle: str, gate: Path, component_file: Path
) -> None:
    with watching("list", "--watch") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{handle} RUNNING\n"
        other = torchx("run", f"{component_file}:sh", "--cmd", "true").out.strip()
        seen = process.stdout.readline()
        assert seen.startswith(other)
        while not seen.endswith("SUCCEEDED\n"):
            seen = process.stdout.readline()
        gate.touch()
        assert process.stdout.readline() == f"{handle} FAILED\n"
        torchx("delete", other)
        assert process.stdout.readline() == f"{other} DELETED\n"
        process.send_signal(signal.SIGINT)
        process.wait()  # before its output has no reader any more
    assert process.returncode == 130


def test_a_job_that_is_unknown_or_over(torchx: Torchx, component_file: Path) -> None:
    done = torchx("status", "--watch", "local_cwd://torchx/nosuch-x1")
    assert done.code == 1
    assert "does not exist on scheduler `local_cwd`" in done.err
    ended = torchx("run", f"{component_file}:sh", "--cmd", "true").out.strip()
    done = torchx("status", "--watch", ended)
    assert done.code == 0
    assert done.out.splitlines()[-1] == f"{ended.rpartition('/')[2]} SUCCEEDED"


def test_the_runner_gives_a_snapshot_for_each_change(gate: Path) -> None:
    with get_runner() as runner:
        script = f"until [ -e {gate} ]; do sleep 0.05; done"
        handle = runner.run(sh("sh", "-c", script), "local_cwd")
        seen = []
        for snapshot in runner.watch(handle):
            seen.append(snapshot.state)
            gate.touch()
        assert seen[0] is AppState.RUNNING
        assert seen[-1] is AppState.SUCCEEDED
        assert len(seen) == 2
        with pytest.raises(UnknownAppException):
            runner.watch("local_cwd://torchx/nosuch-x1")


def test_schedulers_without_hooks_are_watched_too(
    call: Callable[..., Any], remote: Any, component_file: Path
) -> None:
    remote.states = [AppState.PENDING] * 3 + [AppState.RUNNING] * 2 + [AppState.SUCCEEDED]
    run = ["run", "-s", "remote", "-cfg", "team=a", f"{component_file}:sh", "--cmd", "true"]
    handle = call(*run).out.strip()
    lines = call("status", "--watch", handle).out.splitlines()
    assert lines[-1] == "job-1 SUCCEEDED"
    assert "job-1 RUNNING" in lines


def wait_until(condition: Callable[[], bool]) -> None:
    import time

    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_words_that_only_repeat_the_state_are_left_out() -> None:
    ended = AppSnapshot("7", native_state=AppState.CANCELLED, message="CANCELLED")
    assert changes(None, ended) == ["7 CANCELLED"]


def test_lines_that_the_terminal_breaks_are_drawn_over_as_well(handle: str, gate: Path) -> None:
    screen = on_terminal("status", "--watch", handle, columns=40, steps=[("RUNNING", gate.touch)])
    assert screen.code == 0
    first, *redrawn = re.split(r"\033\[(\d+)F\033\[J", screen.raw)
    lines = ESCAPES.sub("", first).rstrip("\n").split("\n")
    assert max(map(len, lines)) > 40  # the path of the logs
    assert int(redrawn[0]) == sum(max(1, -(-len(line) // 40)) for line in lines)


def test_what_is_higher_than_the_terminal_is_cut_with_a_count() -> None:
    script = (
        "from torchx.cli._watch import Screen\n"
        "screen = Screen()\n"
        "screen.show('\\n'.join(['x' * 50, *map(str, range(100))]))\n"
        "screen.show('again')\n"
    )
    raw = python_on_terminal(script, columns=40).raw  # of 40 rows
    shown, _, again = raw.partition("\033[39F\033[J")
    assert shown.endswith("\n35\n... and 64 more lines\n")
    assert again == "again\n"
