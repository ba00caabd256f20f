"""Launches each of the components for everyday use on this machine, through the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*args: str) -> "subprocess.CompletedProcess[str]":
    """Runs the component in the current directory; the job finds this test's interpreter."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    program = [sys.executable, "-m", "torchx.cli.main", "run", *args]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "SUCCEEDED" in done.stderr
    return done


def test_a_message_is_echoed() -> None:
    assert "echo/1 a  b\n" in run("utils.echo", "--msg", "a  b", "--num_replicas", "2").stderr


def test_a_file_is_touched() -> None:
    run("utils.touch", "--file", "new file")
    assert Path("new file").read_text() == ""


def test_a_shell_command_runs() -> None:
    assert "sh/0 a  $B\n" in run("utils.sh", "--", "echo", "a  $B").stderr


@pytest.mark.parametrize("target", ["deep/b", "file://{cwd}/deep/b"])
def test_a_file_is_copied(target: str) -> None:
    Path("a").write_text("data")
    done = run("utils.copy", "--src", "a", "--dst", target.format(cwd=Path.cwd()))
    assert "copying a to" in done.stderr
    assert Path("deep/b").read_text() == "data"


def test_the_booth_function_is_evaluated() -> None:
    run("utils.booth", "--x1", "1", "--x2", "3", "--trial_idx", "7", "--tracker_base", "trials")
    (result,) = [p for p in Path("trials").rglob("*") if p.is_file()]
    assert json.loads(result.read_text()) == {"booth_eval": 0.0}


@pytest.mark.parametrize(
    "program", [["-c", "import sys; print(*sys.argv[1:])"], ["-m", "show"], ["--script", "show.py"]]
)
def test_a_python_program_runs(program: list[str]) -> None:
    Path("show.py").write_text("import sys\nprint(*sys.argv[1:])\n")
    assert "python/0 --x 1\n" in run("utils.python", *program, "--", "--x", "1").stderr


def test_a_program_runs() -> None:
    assert "x y\n" in run("utils.binary", "--entrypoint", "echo", "--", "x", "y").stderr
