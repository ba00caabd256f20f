"""``lsf`` through the command line, on programs that stand in for LSF's."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.contract import fake_lsf

ALL_REDUCE = Path(__file__).parents[3] / "examples/all_reduce.py"


@pytest.fixture
def torchx(lsf_programs):
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        bin_dir = str(Path(sys.executable).parent)
        path = os.pathsep.join([os.environ["PATH"], bin_dir])
        program = [sys.executable, "-m", "torchx.cli.main"]
        return subprocess.run(
            [*program, *args],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


def test_a_workspace_is_copied_to_where_the_job_runs(torchx, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "note.txt").write_text("from the workspace\n")
    cfg = f"runtime=none,jobdir={tmp_path / 'jobs'}"
    done = torchx(
        *("run", "-s", "lsf", "--log", "-cfg", cfg, "--workspace", str(source)),
        *("utils.sh", "cat", "note.txt"),
    )
    assert done.returncode == 0, done.stderr
    assert "from the workspace" in done.stderr
    handle = done.stdout.split()[0]
    (source / "note.txt").unlink()
    assert torchx("log", handle).stdout.endswith("from the workspace\n")
    assert "SUCCEEDED" in torchx("list", "-s", "lsf").stdout


def test_without_lsf_one_line_says_what_to_do(torchx, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = torchx("run", "-s", "lsf", "-cfg", "runtime=none", "utils.echo", "--msg", "hi")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "bsub" in line]
    assert "`bsub` was not found" in line
    assert "PATH" in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_submission_leaves_nothing(lsf_programs, tmp_path, number, code):
    """The signal comes when LSF has the job, and its answer has not been read."""
    jobs = tmp_path / "lsf"
    (jobs / "answer-late").touch()
    launch = subprocess.Popen(
        [
            *(sys.executable, "-m", "torchx.cli.main", "run", "-s", "lsf", "-cfg", "runtime=none"),
            *("utils.sh", "sleep", "3600"),
        ],
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not [*jobs.glob("*.state")]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    launch.send_signal(number)
    _, printed = launch.communicate(timeout=60)
    assert launch.returncode == code, printed
    while any(fake_lsf.is_live(json.loads(path.read_text())) for path in jobs.glob("*.state")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: pip install torch",
)
@pytest.mark.parametrize("gang", [False, True])
def test_the_all_reduce_of_two_replicas_with_two_processes(torchx, tmp_path, gang):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    cfg = f"runtime=none,jobdir={tmp_path / 'jobs'},gang={gang}"
    done = torchx(
        *("run", "-s", "lsf", "--log", "-cfg", cfg, "--workspace", ""),
        *("dist.ddp", "-j", "2x2", "--rdzv_port", str(port), "--script", str(ALL_REDUCE)),
    )
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"rank {rank} of 4 on node" in done.stderr
    handle = done.stdout.strip()
    status = json.loads(torchx("status", "--json", handle).stdout)
    assert status["state"] == "SUCCEEDED"
    assert [len(role["replicas"]) for role in status["roles"]] == [2]
    assert torchx("log", handle).stdout.count("sum is 6") == 4
