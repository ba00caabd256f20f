"""Workspaces of jobs on slurm; those that need a cluster are marked."""

from pathlib import Path

import pytest

from torchx.errors import InvalidInput
from torchx.runner import get_runner
from torchx.schedulers.slurm_scheduler import create_scheduler
from torchx.specs import AppDef, AppState, Role

from .conftest import Cluster, sh


@pytest.fixture
def source(tmp_path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    program = folder / "run me.sh"
    program.write_text("#!/bin/sh\npwd\ncat data\n")
    program.chmod(0o755)
    (folder / "data").write_text("from the workspace\n")
    return folder


@pytest.mark.slurm
def test_a_job_runs_in_the_copy_of_its_workspace(cluster: Cluster, source, tmp_path):
    job_dir = tmp_path / "job dir"
    app = AppDef("itest", [Role("r", "", entrypoint="./run me.sh", args=["${img_root}"])])
    cfg = {"partition": "all", "job_dir": str(job_dir)}
    with get_runner() as runner:
        runner.dryrun(app, "slurm", cfg, workspace=str(source))
        runner.dryrun(app, "slurm", cfg, workspace=str(source))
        handle = runner.run(app, "slurm", cfg, workspace=str(source))
        app_id = handle.rpartition("/")[2]
        cluster.started.append(app_id)
        assert cluster.end(app_id).state is AppState.SUCCEEDED
        lines = [*runner.log_lines(handle, "r")]
    assert lines == [f"{job_dir}\n", "from the workspace\n"]
    (role,) = cluster.describe(app_id).roles
    assert role.image == str(job_dir)


def test_the_root_of_a_copy_is_told_in_full(source):
    app = AppDef("a", [Role("r", "", entrypoint="cat", args=["${img_root}/data"])])
    with get_runner() as runner:
        info = runner.dryrun(app, "slurm", {"job_dir": "run1"}, workspace=str(source))
    assert info.request.replicas["r-0"].args == [f"{Path.cwd()}/run1/data"]
    assert Path("run1/data").exists()


def test_without_a_job_dir_nothing_is_copied(source, tmp_path):
    app = AppDef("a", [Role("r", "img", entrypoint="true")])
    with get_runner() as runner:
        info = runner.dryrun(app, "slurm", {}, workspace=str(source))
    assert info.request.images_to_push == ("dir", None)
    assert info.app.roles[0].image == "img"
    assert [*Path.cwd().iterdir()] == []


def test_images_of_the_docker_builder_are_run_in_containers():
    app = AppDef("a", [Role("r", "my/image:1", entrypoint="${img_root}x")])
    info = create_scheduler("t").submit_dryrun(app, {"workspace_type": "docker"})
    request = info.request
    assert request.images_to_push == ("docker", {})
    assert request.replicas["r-0"].srun_opts["container-image"] == "my/image:1"
    assert '--container-mounts="$PWD:$PWD"' in str(info)


def test_another_builder_is_refused_with_the_names_of_those_there_are():
    app = AppDef("a", [sh("true")])
    with pytest.raises(InvalidInput, match="dir, docker"):
        create_scheduler("t").submit_dryrun(app, {"workspace_type": "zip"})


def test_a_local_image_is_pushed_under_the_name_that_the_job_uses():
    app = AppDef("a", [Role("r", f"sha256:{'a' * 64}", entrypoint="true")])
    cfg = {"workspace_type": "docker", "image_repo": "reg.example.com/x"}
    info = create_scheduler("t").submit_dryrun(app, cfg)
    image = info.request.replicas["r-0"].srun_opts["container-image"]
    assert image.startswith("reg.example.com/x:")
    assert app.roles[0].image.startswith("sha256:")
