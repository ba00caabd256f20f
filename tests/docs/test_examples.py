"""Runs the examples as their README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def torchx(*args: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "torchx.cli.main", *args]
    env = {**os.environ, "TORCHXCONFIG": ""}
    return subprocess.run(program, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


def test_every_example_has_its_command_in_their_readme() -> None:
    commands = (ROOT / "examples/README.md").read_text()
    for example in (ROOT / "examples").glob("*.py"):
        assert re.search(rf"`torchx run [^`]*examples/{example.name}", commands)


def test_hello_streams_the_lines_of_all_replicas_and_ends_with_the_state() -> None:
    done = torchx("run", "examples/hello.py:hello", "--workers", "3", "--name", "you")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"local_cwd://\S+/hello-\S+\n", done.stdout)
    assert re.search(r"^leader/0 hello you, this is job hello-\S+$", done.stderr, re.MULTILINE)
    for worker in range(3):
        lines = [line for line in done.stderr.splitlines() if line.startswith(f"worker/{worker} ")]
        assert lines == [f"worker/{worker} step {n} of worker {worker}" for n in (1, 2, 3)]
    assert "SUCCEEDED" in done.stderr.splitlines()[-1]


def test_hello_shows_its_lines_interleaved() -> None:
    lines = torchx("run", "examples/hello.py:hello").stderr.splitlines()
    workers = [line.split()[0] for line in lines if line.startswith("worker/")]
    assert workers != sorted(workers)
