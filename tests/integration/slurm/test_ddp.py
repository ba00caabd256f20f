"""A real all-reduce with PyTorch over nodes of a cluster, through the command line."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from torchx.specs import AppState

SCRIPT = Path(__file__).parents[3] / "examples/all_reduce.py"

pytestmark = [
    pytest.mark.slurm,
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


def ddp(j: str, script: Path = SCRIPT) -> list[str]:
    """A job that shares its port with no other job on this machine."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    head = ["run", "--wait", "-s", "slurm", "-c", "partition=debug", "dist.ddp", "-j", j]
    return [*head, "--memMB", "1500", "--rdzv_port", str(port), "--script", str(script)]


@pytest.mark.parametrize(("j", "nodes", "procs"), [("1x2", 1, 2), ("2x2", 2, 2), ("1:2x2", 2, 2)])
def test_all_reduce_succeeds_over_nodes(slurm_cluster, j, nodes, procs) -> None:
    done = torchx(*ddp(j))
    handle = done.stdout.strip()
    logs = torchx("log", handle)
    assert done.returncode == 0, (done.stderr, logs.stdout, logs.stderr)
    size = nodes * procs
    status = json.loads(torchx("status", "--json", handle).stdout)
    assert status["state"] == "SUCCEEDED"
    (role,) = status["roles"]
    hosts = [replica["hostname"] for replica in role["replicas"]]
    assert len(set(hosts)) == len(hosts) == nodes
    for rank in range(size):
        assert f"rank {rank} of {size} on node" in logs.stdout
    assert logs.stdout.count(f"sum is {size * (size - 1) // 2}") == size


def test_a_rank_that_raises_is_the_error_of_the_job(slurm_cluster) -> None:
    done = torchx(*ddp("2x2"), "--", "--fail_rank", "1")
    assert done.returncode == 1
    status = json.loads(torchx("status", "--json", done.stdout.strip()).stdout)
    assert status["state"] == "FAILED"
    error = json.loads(status["structured_error_msg"])["message"]
    assert "rank 1 was told to fail" in json.dumps(error)


DIES = """
import os, time
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    os._exit(7)
time.sleep(3600)
"""


def test_a_node_that_dies_does_not_keep_the_others_waiting(slurm_cluster, tmp_path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    done = torchx(*ddp("2x1", script))
    assert done.returncode == 1, done.stderr
    status = json.loads(torchx("status", "--json", done.stdout.strip()).stdout)
    assert status["state"] == "FAILED"
    states = [AppState(replica["state"]) for replica in status["roles"][0]["replicas"]]
    assert sorted(states) == [AppState.FAILED, AppState.CANCELLED]
    assert "ending the other replicas" in done.stderr
