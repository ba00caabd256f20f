"""The call of srun by which a command is run beside a replica."""

import pytest

from torchx.schedulers.api import ExecRequest, ReplicaSnapshot
from torchx.schedulers.slurm_scheduler._execute import execute, step_command
from torchx.schedulers.slurm_scheduler._job import JobDir
from torchx.schedulers.slurm_scheduler._states import SlurmSnapshot
from torchx.specs import AppState, Role

REPLICA = ReplicaSnapshot("b", 3, AppState.RUNNING, host="node7", attempt=2)
DIR = JobDir("/work", "tok", "", None)


def command(snapshot: SlurmSnapshot, *words: str, tty: bool = False) -> list[str]:
    return step_command(snapshot, 1, REPLICA, ExecRequest(words, tty))


def test_a_step_of_its_own_shares_the_node_of_the_replica() -> None:
    found = command(SlurmSnapshot("12", job_dir=DIR), "ls", "a b")
    at = found.index("/bin/bash")
    assert found[:at] == [
        "srun",
        "--jobid=12",
        "--overlap",
        "--quiet",
        "--nodes=1",
        "--ntasks=1",
        "--nodelist=node7",
        "--chdir=/",
        "--export=NONE",
    ]
    assert found[at + 1] == "-c"
    assert found[at + 3 :] == ["torchx", "/12-tok/error-2-1-3.json", "", "ls", "a b"]


def test_a_terminal_a_component_and_a_cluster_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "vt100")
    far = JobDir("/work", "tok", "far", None)
    found = command(SlurmSnapshot("12", job_dir=far, groups={"b": 1}), "sh", tty=True)
    assert found[1:4] == ["--clusters=far", "--jobid=12", "--het-group=1"]
    assert "--pty" in found
    assert found[-2:] == ["vt100", "sh"]


def test_a_replica_whose_node_is_not_known_is_an_error() -> None:
    nowhere = ReplicaSnapshot("b", 3, AppState.RUNNING)
    snapshot = SlurmSnapshot("12", job_dir=DIR, roles=(Role("b", ""),))
    with pytest.raises(ValueError, match="the node of replica `b/3` is not known yet"):
        execute(snapshot, nowhere, ExecRequest(("ls",)))
