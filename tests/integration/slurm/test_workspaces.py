"""Workspaces of jobs on slurm; those that need a cluster are marked."""

from pathlib import Path

import pytest

from torchx.errors import InvalidInput
from torchx.runner import get_runner
from torchx.schedulers.slurm_scheduler import create_scheduler
from torchx.specs import AppDef, AppState, Role, Workspace
from torchx.workspace import pin_workspace_images

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


@pytest.fixture
def two(tmp_path) -> AppDef:
    """An app of two roles, each with a program of the same name in a workspace of its own."""
    app = AppDef("itest", [])
    for name in ("a", "b"):
        folder = tmp_path / f"source of {name}"
        folder.mkdir()
        (folder / "run.sh").write_text(f"#!/bin/sh\necho {name} in $(pwd)\n")
        (folder / "run.sh").chmod(0o755)
        role = Role(name, "", entrypoint="./run.sh", workspace=Workspace({str(folder): ""}))
        app.roles.append(role)
    return app


@pytest.mark.slurm
def test_each_role_runs_in_the_copy_of_its_own_workspace(cluster: Cluster, two, tmp_path):
    job_dir = tmp_path / "job dir"
    with get_runner() as runner:
        handle = runner.run(two, "slurm", {"partition": "all", "job_dir": str(job_dir)})
        app_id = handle.rpartition("/")[2]
        cluster.started.append(app_id)
        assert cluster.end(app_id).state is AppState.SUCCEEDED
        assert [*runner.log_lines(handle, "a")] == [f"a in {job_dir}\n"]
        assert [*runner.log_lines(handle, "b")] == [f"b in {job_dir}/b\n"]
    assert sorted(p.name for p in (job_dir / "b").iterdir()) == ["run.sh"]


def test_roles_whose_workspaces_were_built_before_run_in_their_copies(two):
    cfg = {"job_dir": "run1"}
    with get_runner() as runner:
        pin_workspace_images(two, runner.build_workspace(two, "slurm", cfg))
        assert not any(role.workspace for role in two.roles)
        other = Path("run1", "other")
        other.mkdir()
        two.roles.append(Role("c", str(other), entrypoint="true"))
        replicas = runner.dryrun(two, "slurm", cfg).request.replicas
    dirs = {name: replica.work_dir for name, replica in replicas.items()}
    assert dirs == {"a-0": "", "b-0": f"{Path.cwd()}/run1/b", "c-0": ""}


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
