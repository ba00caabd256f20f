"""Images that jobs run in, with programs of Slurm and a Docker daemon that are ours."""

import copy

import pytest

pytest.importorskip("docker", reason="needs the Python package docker")

from tests.unit.workspace.fake_daemon import BUILT_ID, FakeDaemon, running
from torchx.specs import AppDef, Role

DIGEST = "sha256:" + "f" * 64
PUSHED = [{"status": "Pushed", "id": "l"}, {"aux": {"Tag": "t", "Digest": DIGEST, "Size": 1}}]


@pytest.fixture
def daemon(monkeypatch):
    daemon = FakeDaemon()
    daemon.images[BUILT_ID] = BUILT_ID
    with running(daemon) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        yield daemon


def test_an_image_that_was_pushed_is_submitted_by_its_digest(
    daemon, fake_slurm, scheduler, tmp_path
):
    fake_slurm.answer("sbatch", "1234\n")
    daemon.pushes = [PUSHED]
    roles = [Role("r", BUILT_ID, entrypoint="x"), Role("s", "other:1", entrypoint="x")]
    cfg = {"workspace_type": "docker", "image_repo": "h/i", "job_dir": str(tmp_path / "job")}
    info = scheduler.submit_dryrun(AppDef("a", roles), cfg)
    before = copy.deepcopy(info.request)
    assert scheduler.schedule(info) == "1234"
    assert info.request == before
    script = (tmp_path / "job/torchx-sbatch.sh").read_text()
    assert f"--container-image=h/i@{DIGEST} " in script
    assert "--container-image=other:1 " in script
    assert "h/i:" not in script


def test_an_image_of_the_users_own_stays_as_it_is(daemon, fake_slurm, scheduler, tmp_path):
    fake_slurm.answer("sbatch", "1234\n")
    daemon.pushes = [PUSHED]
    cfg = {
        "workspace_type": "docker",
        "image_repo": "h/i",
        "job_dir": str(tmp_path / "job"),
        "srun_args": "--container-image=/images/mine.sqsh",
    }
    app = AppDef("a", [Role("r", BUILT_ID, entrypoint="x")])
    scheduler.schedule(scheduler.submit_dryrun(app, cfg))
    assert "--container-image=/images/mine.sqsh " in (tmp_path / "job/torchx-sbatch.sh").read_text()
