"""Runs whose backends take long, are full, or go away: what is typed, and what happens then."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.contract import fake_slurm
from tests.fake_kube.server import FakeKube
from tests.unit.cli.docker_host import DockerHost
from tests.unit.cli.terminal import Screen, Steps, off_terminal, on_terminal
from tests.unit.workspace.registry.fake_registry import FakeRegistry
from torchx.testing.programs import Programs

AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
JOB = """
import torchx.specs as specs
def train(image: str = "python:3.11", gpu: int = 0, epochs: int = 3) -> specs.AppDef:
    script = f"for i in $(seq {epochs}); do echo epoch $i; sleep 0.2; done"
    return specs.AppDef("train", [
        specs.Role("trainer", image, entrypoint="sh", args=["-c", script], num_replicas=2,
                   resource=specs.Resource(1, gpu, 4096))])
"""


class Scene(NamedTuple):
    """A run of the command line.

    Args:
        steps: what happens to the backend when these words are shown.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    steps: Steps = ()

    def on_terminal(self, columns: int = 80, env: dict[str, str] | None = None) -> Screen:
        """What a terminal shows of it."""
        return on_terminal(
            *self.argv, columns=columns, env={**self.env, **(env or {})}, steps=self.steps
        )

    def off_terminal(self) -> Screen:
        """What a file gets of it."""
        return off_terminal(*self.argv, env=self.env, steps=self.steps)


def project(folder: Path) -> Path:
    """A directory with a component, whose image gets it as a workspace."""
    folder.mkdir(exist_ok=True)
    (folder / "job.py").write_text(JOB)
    return folder


@contextmanager
def building(folder: Path) -> Iterator[Scene]:
    """An image is pulled, and another one built on it, by a Docker daemon."""
    with DockerHost() as host:
        workspace = f"--workspace={project(folder)}"
        argv = ("run", "-s", "local_docker", workspace, f"{folder}/job.py:train")
        yield Scene((*argv, "--image", "team/base:1"), {"DOCKER_HOST": host.url})


@contextmanager
def pushing(
    folder: Path, kube: FakeKube, builder: str = "auto", data_bytes: int = 0
) -> Iterator[Scene]:
    """An image is pushed for a job on a cluster.

    Args:
        builder: ``docker`` for a daemon; it is put together in the registry otherwise.
        data_bytes: of the workspace, beside its code.
    """
    registry = FakeRegistry()
    stop = registry.serve()
    try:
        registry.add_image("team/base", "1")
        with DockerHost() as host:
            cfg = f"image_repo={registry.host}/team/train,image_builder={builder}"
            argv = ("run", "-s", "kubernetes", "-cfg", cfg, f"--workspace={project(folder)}")
            if data_bytes:
                (folder / "data.bin").write_bytes(os.urandom(data_bytes))
            argv = (*argv, f"{folder}/job.py:train", "--image", f"{registry.host}/team/base:1")
            env = {"DOCKER_HOST": host.url, "DOCKER_CONFIG": str(folder / "docker-config")}
            yield Scene(argv, {**env, **_kubeconfig(folder, kube)})
    finally:
        stop()


def pending(folder: Path, kube: FakeKube) -> Scene:
    """No node has the GPUs, then none the memory, then all fits."""
    steps = (
        ("enough", lambda: kube.admin("capacity", {"nvidia.com/gpu": "16", "memory": "1Gi"})),
        ("memory.)", lambda: kube.admin("capacity", {"memory": "64Gi"})),
    )
    argv = (*_waiting(folder, "kubernetes"), "--gpu", "16")
    return Scene(argv, _kubeconfig(folder, kube), steps)


def away(folder: Path) -> Scene:
    """The controller of Slurm does not answer for a while."""
    jobs = folder / "jobs"
    jobs.mkdir(parents=True)
    script = Path(fake_slurm.__file__)
    names = fake_slurm.CLIENT_PROGRAMS
    programs = Programs.of_script(folder / "bin", script, names, patient=["srun"])
    Programs.of_script(folder / "node", script, fake_slurm.NODE_PROGRAMS)
    outage = ExitStack()
    steps = (
        ("epoch 1", lambda: outage.enter_context(programs.away(AWAY))),
        ("cannot be", outage.close),
    )
    env = {
        "PATH": os.pathsep.join([f"{folder}/bin", f"{folder}/node", os.environ["PATH"]]),
        "FAKE_SLURM_DIR": str(jobs),
        "SLURM_CONF": str(jobs / "slurm.conf"),
    }
    return Scene(_waiting(folder, "slurm"), env, steps)


def _waiting(folder: Path, scheduler: str) -> tuple[str, ...]:
    flags = ("-s", scheduler, "--workspace=", "--log")
    return ("run", *flags, f"{project(folder)}/job.py:train")


def _kubeconfig(folder: Path, kube: FakeKube) -> dict[str, str]:
    return {"KUBECONFIG": kube.kubeconfig(folder / "kubeconfig")}
