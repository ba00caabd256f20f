"""The main job: a real all-reduce with PyTorch on ``local_cwd``, through the command line."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/all_reduce.py"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="PyTorch is not installed: pip install torch",
    ),
]


def torchx(*args: str) -> subprocess.CompletedProcess[str]:
    bin_dir = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": bin_dir + os.pathsep + os.environ["PATH"]}
    program = [sys.executable, "-m", "torchx.cli.main"]
    return subprocess.run(
        [*program, *args], env=env, capture_output=True, text=True, timeout=240, check=False
    )


def ddp(j: str, script: Path) -> list[str]:
    """A job that shares its port with no other job on this machine."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    return ["run", "dist.ddp", "-j", j, "--rdzv_port", str(port), "--script", str(script)]


@pytest.mark.parametrize(("j", "nodes", "procs"), [("1x2", 1, 2), ("2x2", 2, 2)])
def test_all_reduce_succeeds(j: str, nodes: int, procs: int) -> None:
    done = torchx(*ddp(j, SCRIPT))
    assert done.returncode == 0, done.stderr
    size = nodes * procs
    for rank in range(size):
        assert f"rank {rank} of {size} on node" in done.stderr
    handle = done.stdout.strip()
    status = json.loads(torchx("status", "--json", handle).stdout)
    assert status["state"] == "SUCCEEDED"
    assert [len(role["replicas"]) for role in status["roles"]] == [nodes]
    logs = torchx("log", handle).stdout
    assert logs.count(f"sum is {size * (size - 1) // 2}") == size


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("j", ["1x2", "2x2"])
def test_a_rank_that_raises_fails_the_job_with_its_traceback(
    j: str, recorded: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    text = SCRIPT.read_text()
    script.write_text(text if recorded else text.replace("@record\n", ""))
    done = torchx(*ddp(j, script), "--", "--fail_rank", "1")
    assert done.returncode == 1
    handle = done.stdout.strip()
    status = json.loads(torchx("status", "--json", handle).stdout)
    assert status["state"] == "FAILED"
    error = json.loads(status["structured_error_msg"])["message"]
    assert "rank 1 was told to fail" in error["message"]
    callstack = error["extraInfo"]["py_callstack"]
    assert callstack.startswith("Traceback (most recent call last):")
    assert 'raise RuntimeError(f"rank {rank} was told to fail")' in callstack
    assert error["extraInfo"]["rank"] == 1
    at = text.split('raise RuntimeError(f"rank {rank}')[0].count("\n") + 1 - (not recorded)
    told = f"rank 1: RuntimeError: rank 1 was told to fail ({script}:{at} in main)"
    assert told in status["msg"]
    # what is told stands before anything else that a command says of the failed job
    ending = done.stderr[done.stderr.index(f"job `{handle}` FAILED") :]
    assert told in ending.splitlines()[0]
    for command in ("status", "describe"):
        assert told in torchx(command, handle).stderr.splitlines()[0]
