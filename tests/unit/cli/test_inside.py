"""``torchx exec``, ``shell`` and ``port-forward`` on local jobs."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import RemoteScheduler
from torchx.cli.cmd_port_forward import parse_words
from torchx.errors import InvalidInput
from torchx.testing._contract.inside import Terminal

Torchx = Callable[..., Any]


@pytest.fixture
def handle(torchx: Torchx, component_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(component_file.parent)
    started = torchx("run", "--detach", "jobs.py:sh", "--cmd", "sleep 60", "--n", "2")
    assert started.code == 0, started.err
    yield started.out.strip()
    torchx("delete", started.out.strip())


def test_a_command_has_what_the_replica_has_and_gives_its_exit_code(
    torchx: Torchx, handle: str, component_file: Path
) -> None:
    script = 'echo "$PLAIN $(pwd)"; echo told >&2; exit 9'
    done = torchx("exec", handle, "work/1", "--", "sh", "-c", script)
    assert (done.code, done.out) == (9, f"seen {component_file.parent}\n")
    assert done.err == "told\n"


def test_a_shell_reads_commands_from_a_pipe(torchx: Torchx, handle: str) -> None:
    done = torchx("shell", handle, stdin="echo from $PLAIN\nexit 4\n")
    assert (done.code, done.out) == (4, "from seen\n")


def test_without_input_a_command_reads_nothing(torchx: Torchx, handle: str) -> None:
    assert torchx("exec", "--no-stdin", handle, "--", "cat", stdin="given").out == ""
    assert torchx("exec", handle, "--", "cat", stdin="given").out == "given"


def test_on_a_terminal_the_command_has_it(handle: str) -> None:
    shown = Terminal()
    command = [sys.executable, "-m", "torchx.cli.main", "exec", handle, "--"]
    shown.type("exit 6\n")
    streams = {"stdin": shown.slave, "stdout": shown.slave, "stderr": shown.slave}
    script = "test -t 0 && test -t 1 && stty size; read line; $line"
    done = subprocess.run([*command, "sh", "-c", script], timeout=60, check=False, **streams)
    assert "33 111" in shown.close()
    assert done.returncode == 6


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["work/9", "--", "true"], 2, "has no replica `work/9`, it has: work/0, work/1"),
        (["wrok/0", "--", "true"], 2, "it has: work/0, work/1. Did you mean `work/0`?"),
        (["work/x", "--", "true"], 2, "`work/x` is no replica: write ROLE/K"),
        (["--", "nosuchprogram"], 127, "nosuchprogram: command not found"),
        ([], 2, "give a command after `--`"),
        (["--"], 2, "give a command after `--`"),
    ],
)
def test_bad_input_of_exec_is_told_in_a_line(
    torchx: Torchx, handle: str, words: list[str], code: int, told: str
) -> None:
    done = torchx("exec", handle, *words)
    assert done.code == code
    assert told in done.err
    assert "Traceback" not in done.err


def test_a_replica_that_has_ended_is_an_error(
    torchx: Torchx, component_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(component_file.parent)
    ended = torchx("run", "jobs.py:sh", "--cmd", "exit 3").out.strip()
    done = torchx("exec", ended, "--", "true")
    assert done.code == 1  # the command line is right, the job has ended
    assert "replica `work/0`" in done.err
    assert "has ended, it is FAILED (exited with code 3)" in done.err
    shell = torchx("shell", ended)
    assert shell.code == 1
    assert shell.err.partition(" ERROR ")[2] == done.err.partition(" ERROR ")[2]
    assert torchx("exec", "local_cwd://torchx/nosuch-x1", "--", "true").code == 1


def test_a_scheduler_that_tells_nothing_of_replicas_says_so(
    call: Callable[..., Any], remote: RemoteScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    done = call("exec", "remote://torchx/job-1", "--", "true")
    assert done.code == 1
    assert "scheduler `remote` does not tell enough of the replicas" in caplog.text


def test_where_ports_cannot_be_forwarded_another_way_is_named(torchx: Torchx, handle: str) -> None:
    done = torchx("port-forward", handle, "8080")
    assert done.code == 1
    can = "`local_cwd` cannot forward ports, as `kubernetes` and `kubernetes_mcad` can; connect to"
    assert f"{can} port 8080 of its host instead: {os.uname().nodename}" in done.err
    torchx("cancel", handle)
    done = torchx("port-forward", handle, "8080")
    assert done.code == 1
    assert f"{can} port 8080 of its host instead, which `torchx status` may name" in done.err


@pytest.mark.parametrize("words", [["0"], ["99999"], ["worker/0"], ["1:2:3"], ["80", "x"]])
def test_what_is_no_port_is_refused(words: list[str]) -> None:
    with pytest.raises(InvalidInput, match="is no port: write"):
        parse_words(words)
