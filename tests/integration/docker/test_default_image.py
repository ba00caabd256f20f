"""The default image of components, built from this checkout as its Dockerfile says, and used."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docker_engine import PYTHON_IMAGE, needs_docker

ROOT = Path(__file__).parents[3]
TORCH_IMAGE = "torchx-test/torch"

pytestmark = [
    *needs_docker,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("docker") is None, reason="the program `docker` is missing"),
]


def run(*command: str, **env: str) -> "subprocess.CompletedProcess[str]":
    # not every Docker has the newer builder
    environ = {**os.environ, "DOCKER_BUILDKIT": "0", **env}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def newest(repository: str) -> str:
    """An image by its tag; skips without one."""
    form = "{{.Repository}}:{{.Tag}}"
    found = run("docker", "images", "--format", form, repository).stdout.split()
    if not found:
        pytest.skip(f"there is no image {repository}: scripts/engines/docker image [torch]")
    return found[0]


@pytest.fixture(scope="module")
def built() -> Iterator[Callable[..., str]]:
    """Builds images with tags of their own, which are removed afterwards."""
    tags = []
    name = uuid.uuid4().hex

    def build(context: Path, *options: str) -> str:
        tags.append(f"torchx-test/default:{uuid.uuid4().hex[:12]}")
        done = run(
            "docker",
            "build",
            "--network",
            "none",
            "--build-arg",
            f"BUILD={name}",
            "-q",
            *options,
            "-t",
            tags[-1],
            str(context),
        )
        assert done.returncode == 0, done.stderr
        return tags[-1]

    yield build
    for tag in reversed(tags):
        run("docker", "rmi", "-f", tag)
    run("docker", "image", "prune", "-f", "--filter", f"label=torchx.pytorch.org/build={name}")


def wheels(folder: Path, *more: str) -> Path:
    """The context: this package's wheel and those that it needs."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "-w", str(folder)]
    done = run(*command, f"{ROOT}[fsspec]", "pip", *more)
    assert done.returncode == 0, done.stderr
    return folder


DOCKERFILE = ("-f", str(ROOT / "docker/Dockerfile"))


@pytest.fixture(scope="module")
def image(built: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The default image, on top of the small Python of the tests."""
    base = f"BASE={newest(PYTHON_IMAGE)}"
    context = wheels(tmp_path_factory.mktemp("wheels"))
    return built(context, *DOCKERFILE, "--build-arg", base, "--target", "torchx")


def torchx(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return run(sys.executable, "-m", "torchx", *args, **env)


def printed(image: str, *component: str) -> str:
    """What a component printed that ran in the image for lack of another one."""
    options = ["run", "-s", "local_docker", "--workspace", "", "--wait"]
    done = torchx(*options, *component, TORCHX_IMAGE=image)
    assert done.returncode == 0, done.stderr
    handle = done.stdout.strip()
    try:
        return torchx("log", handle).stdout
    finally:
        torchx("delete", handle)


def test_components_run_in_it_without_naming_an_image(image: str) -> None:
    assert printed(image, "utils.echo", "--msg", "hi") == "echo/0 hi\n"
    code = "import torchx, os; print(torchx.__version__, torchx.IMAGE, os.getcwd())"
    version = torchx("--version").stdout.strip().removeprefix("torchx-")
    assert f"{version} {image} /app\n" in printed(image, "utils.python", "-c", code)


def test_the_programs_of_components_are_in_it(image: str) -> None:
    copied = printed(image, "utils.copy", "--src", "file:///etc/passwd", "--dst", "memory://p/q")
    assert "copying" in copied
    booth = ["--x1", "1", "--x2", "3", "--tracker_base", "/tmp/b"]
    printed(image, "utils.booth", *booth)


def test_it_is_small_and_holds_no_wheels(image: str) -> None:
    def size(name: str) -> int:
        return int(json.loads(run("docker", "inspect", name).stdout)[0]["Size"])

    assert size(image) - size(newest(PYTHON_IMAGE)) < 40_000_000
    found = run("docker", "run", "--rm", "--network", "none", image, "ls", "/", "/app").stdout
    assert "wheels" not in found


def test_more_packages_can_be_installed_on_top(image: str) -> None:
    command = ["docker", "run", "--rm", "--network", "none", image]
    assert "/opt/torchx" in run(*command, "python", "-m", "pip", "--version").stdout
    assert run(*command, "pip", "install", "--no-index", "fsspec").returncode == 0


def test_the_second_target_has_torchrun(
    built: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    torch = newest(TORCH_IMAGE)
    # what PyTorch needs of a system, and the base image of the tests lacks
    with_libraries = tmp_path_factory.mktemp("base")
    text = f"FROM {newest(PYTHON_IMAGE)}\nCOPY --from={torch} /usr/lib /usr/lib\n"
    (with_libraries / "Dockerfile").write_text(text)
    base = f"BASE={built(with_libraries)}"
    context = wheels(
        tmp_path_factory.mktemp("wheels"), f"torch=={torch.rpartition(':')[2]}", "numpy"
    )
    image = built(context, *DOCKERFILE, "--build-arg", base, "--target", "torchx-cpu")
    script = "import os, torch; print('rank', os.environ['RANK'], torch.ones(2).sum().item())"
    lines = printed(
        image, "utils.sh", "--memMB", "2048", "--",
        "torchrun", "--nproc-per-node", "2", "--no-python", "--standalone", "python", "-c", script,
    )  # fmt: skip
    assert "rank 0 2.0" in lines
    assert "rank 1 2.0" in lines


@pytest.mark.parametrize(("workspace", "code"), [("", 1), (".", 2)])
def test_a_default_image_that_is_missing_is_told_how_to_build(
    workspace: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the launch, and where a workspace is to be built on top of it."""
    monkeypatch.chdir(tmp_path)
    missing = f"localhost:1/no-such:{uuid.uuid4().hex[:8]}"
    options = ["run", "-s", "local_docker", "--workspace", workspace, "utils.echo"]
    done = torchx(*options, TORCHX_IMAGE=missing)
    assert done.returncode == code
    assert f"the image `{missing}` is not on this machine and cannot be pulled" in done.stderr
    assert "`--image`" in done.stderr
    assert f"--target torchx -t {missing} wheels" in done.stderr
    other = torchx(*options, "--image", missing)
    assert "check its name" in other.stderr
    assert "--target" not in other.stderr
