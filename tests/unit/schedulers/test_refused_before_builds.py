"""What cannot be submitted is refused before a workspace is built, which may take minutes."""

from pathlib import Path
from typing import Any

import pytest

from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.runner import get_runner
from torchx.specs import AppDef, Resource, Role

QUEUE = {"queue": "q"}
BAD = [
    ("kubernetes", {"job_api": "jbo"}, "job_api"),
    ("kubernetes", {"grace_s": -1}, "grace_s"),
    ("kubernetes_mcad", {"appwrapper_version": "v3"}, "appwrapper_version"),
    ("aws_batch", {**QUEUE, "platform": "fargte"}, "platform"),
    ("aws_sagemaker", {"role": "x", "instance_count": 0, "launch": "nope"}, "launch"),
    ("slurm", {"time": "soon"}, "time"),
    ("lsf", {"walltime": "soon"}, "walltime"),
]
CONTAINERS = [
    ("local_docker", {}),
    ("kubernetes", {}),
    ("kubernetes_mcad", {}),
    ("aws_batch", QUEUE),
]


def dryrun(tmp_path: Path, scheduler: str, cfg: dict[str, Any], roles: int = 1) -> None:
    """A build would fail: its Dockerfile cannot be built, and no daemon answers."""
    (tmp_path / "Dockerfile.torchx").write_text("FROM nowhere\n")
    resource = Resource(cpu=1, gpu=0, memMB=100)
    role = Role("same", "image:1", entrypoint="true", resource=resource)
    with get_runner() as runner:
        runner.dryrun(AppDef("a", [role] * roles), scheduler, cfg, workspace=f"file://{tmp_path}")


@pytest.mark.parametrize(("scheduler", "cfg", "option"), BAD)
def test_options(tmp_path: Path, scheduler: str, cfg: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{option}`"):
        dryrun(tmp_path, scheduler, cfg)


@pytest.mark.parametrize(("scheduler", "cfg"), CONTAINERS)
def test_apps(tmp_path: Path, scheduler: str, cfg: dict[str, Any]) -> None:
    with pytest.raises((InvalidInput, UnsupportedRequest), match="`same`"):
        dryrun(tmp_path, scheduler, cfg, roles=2)
