"""The whole text of requests, in ``golden``; those of other schedulers are beside their tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchx.schedulers.docker_scheduler import _options as docker_options
from torchx.schedulers.docker_scheduler import _request as docker_request
from torchx.schedulers.local_scheduler import _request as local_request
from torchx.schedulers.local_scheduler._images import LocalDirectoryImageProvider
from torchx.schedulers.slurm_scheduler import SlurmOpts
from torchx.schedulers.slurm_scheduler import _request as slurm_request
from torchx.specs import AppDef, BindMount, Resource, RetryPolicy, Role, macros
from torchx.version import __version__

GOLDEN = Path(__file__).with_name("golden")


def app(tmp_path: Path, *mounts: BindMount) -> AppDef:
    """What most fields of an app can hold."""
    trainer = Role(
        "trainer",
        str(tmp_path),
        entrypoint="python",
        args=["-m", "train", "--rank", macros.replica_id, "it's $$HOME", f"app={macros.app_id}"],
        env={"ROOT": macros.img_root, "TOKEN": "a b\nc", "FIRST": macros.rank0_env},
        num_replicas=2,
        max_retries=1,
        retry_policy=RetryPolicy.APPLICATION,
        resource=Resource(cpu=4, gpu=2, memMB=4096),
        port_map={"http": 8080},
        mounts=[*mounts],
        metadata={"team": "vision"},
    )
    small = Resource(cpu=1, gpu=0, memMB=512)
    reader = Role("reader", str(tmp_path), entrypoint="read", max_retries=1, resource=small)
    return AppDef("train", [trainer, reader], {"project": "x"})


def local(tmp_path: Path) -> str:
    request = local_request.build_request(
        app(tmp_path), "train-x1", "/logs/train-x1", LocalDirectoryImageProvider(), True, ["/bin"]
    )
    return local_request.render_request(request)


def docker(tmp_path: Path) -> str:
    opts = docker_options.Opts(copy_env=["WANDB_*"], env={"MORE": "1"})
    made = app(tmp_path, BindMount("/data", "/mnt/data", read_only=True))
    environ = {"WANDB_MODE": "offline", "OTHER": "left out"}
    return repr(docker_request.build_request(made, "train-x1", opts, environ))


def slurm(tmp_path: Path) -> str:
    cfg = SlurmOpts.as_runopts().resolve({"partition": "gpu", "time": "1:00", "comment": "a 'b'"})
    facts = slurm_request.Facts(version=(24, 5), partition_mem_mb=64_000)
    return repr(slurm_request.build_request(app(tmp_path), cfg, facts))


@pytest.mark.parametrize("build", [local, docker, slurm])
def test_the_whole_request(build: Callable[[Path], str], tmp_path: Path) -> None:
    """With ``UPDATE_GOLDEN`` set, the files are written anew."""
    text = build(tmp_path).replace(str(tmp_path), "/image").replace(__version__, "VERSION")
    path = GOLDEN / f"{build.__name__}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_scheduler_has_a_golden_request() -> None:
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/golden")}
    files = {path.stem for path in GOLDEN.iterdir()}
    packages = (Path(local_request.__file__).parents[1]).glob("*_scheduler")
    names = {path.name.removesuffix("_scheduler").removeprefix("aws_") for path in packages}
    assert {name.removeprefix("aws_") for name in folders | files} == names
