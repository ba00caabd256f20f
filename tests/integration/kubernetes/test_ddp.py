"""A real all-reduce with PyTorch over the pods of a cluster, through the command line."""

import json
from pathlib import Path

import pytest
import yaml

from torchx.schedulers._kube.calls import CONFIG_MAPS
from torchx.specs.overlays import JOIN

from .real_cluster import TORCH_IMAGE, kubeconfig_for, own_place, torchx

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def place():
    with own_place() as found:
        scripts = {"all_reduce.py": (EXAMPLES / "all_reduce.py").read_text()}
        found.create(CONFIG_MAPS, "scripts", data=scripts)
        yield found


@pytest.fixture
def ddp(place, tmp_path, monkeypatch):
    """Runs the script of all pods, which comes by an overlay in a file; the finished process."""
    monkeypatch.setenv("KUBECONFIG", kubeconfig_for(place, tmp_path / "kubeconfig"))
    mount = {"name": "scripts", "mountPath": "/scripts"}
    overlay = {
        "spec": {
            "volumes": [{"name": "scripts", "configMap": {"name": "scripts"}}],
            JOIN("containers", on="name"): [{"name": "all-reduce", "volumeMounts": [mount]}],
        }
    }
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(overlay))

    def run(j, *args):
        head = ["run", "--wait", "-s", "kubernetes", "-cfg", "grace_s=1", "--workspace="]
        return torchx(
            *head,
            *("dist.ddp", "-j", j, "--image", TORCH_IMAGE, "--memMB", "3000", "--cpu", "1"),
            *("--name", "/all-reduce", "--metadata", f"kubernetes=file://{path}"),
            *("--script", "/scripts/all_reduce.py", *args),
        )

    return run


@pytest.mark.parametrize(("j", "size"), [("2x2", 4), ("1x2", 2)])
def test_all_reduce_succeeds_over_pods(ddp, j, size):
    done = ddp(j)
    handle = done.stdout.strip().splitlines()[-1]
    logs = torchx("log", handle)
    assert done.returncode == 0, done.stderr + logs.stdout + logs.stderr
    for rank in range(size):
        assert f"rank {rank} of {size} on node {rank // 2}" in logs.stdout
    assert logs.stdout.count(f"sum is {size * (size - 1) // 2}") == size
    torchx("delete", handle)


def test_a_rank_that_raises_is_what_run_shows(ddp):
    done = ddp("2x2", "--", "--fail_rank", "1")
    assert done.returncode == 1
    handle = done.stdout.strip().splitlines()[-1]
    assert "rank 1 was told to fail" in done.stderr
    status = json.loads(torchx("status", "--json", handle).stdout)
    assert status["state"] == "FAILED"
    torchx("delete", handle)
