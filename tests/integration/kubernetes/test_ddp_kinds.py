"""A real all-reduce with PyTorch over the pods of each kind of objects."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.kubernetes.real_cluster import (
    TORCH_IMAGE,
    Place,
    kubeconfig_for,
    own_place,
)
from torchx.runner import Runner, get_runner
from torchx.schedulers._kube.calls import Selection
from torchx.schedulers._kube.errors import MissingKind
from torchx.schedulers.kubernetes_mcad_scheduler._client import KINDS as VERSIONS
from torchx.schedulers.kubernetes_scheduler._kinds import GROUPS
from torchx.specs import AppDef, AppState, CfgVal, Role, macros

SCRIPT = Path(__file__).parents[3] / "examples/all_reduce.py"
RUN = (
    'printf %s "$SCRIPT" > /tmp/all_reduce.py; exec torchrun --nnodes 2 --nproc_per_node 2 '
    f"--rdzv_backend c10d --rdzv_endpoint $${{{macros.rank0_env}:=localhost}}:29500 "
    f"--rdzv_id {macros.app_id} /tmp/all_reduce.py"
)

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with own_place() as found:
        yield found


@pytest.fixture
def runner(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setenv("KUBECONFIG", kubeconfig_for(place, tmp_path / "kubeconfig"))
    with get_runner() as made:
        yield made


@pytest.mark.parametrize("api", ["jobset", "volcano"])
def test_all_reduce_succeeds_over_pods(place: Place, runner: Runner, api: str) -> None:
    if GROUPS[api] not in place.kube.groups():
        pytest.skip(f"the cluster has nothing for `job_api={api}`")
    reduce(runner, "kubernetes", {"job_api": api, "grace_s": 1})


@pytest.mark.parametrize("version", [*VERSIONS])
def test_all_reduce_succeeds_in_an_app_wrapper(place: Place, runner: Runner, version: str) -> None:
    try:
        place.kube.list_objects(Selection(VERSIONS[version], place.namespace))
    except MissingKind:
        pytest.skip(f"the cluster serves no AppWrappers of {version}")
    reduce(runner, "kubernetes_mcad", {"appwrapper_version": version, "grace_s": 1})


def reduce(runner: Runner, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
    """Runs two pods with two ranks each to their end."""
    role = Role(
        "all-reduce",
        TORCH_IMAGE,
        entrypoint="bash",
        args=["-c", RUN],
        env={"SCRIPT": SCRIPT.read_text()},
        num_replicas=2,
    )
    handle = runner.run(AppDef("reduce", [role]), scheduler, cfg)
    status = runner.wait(handle)
    lines = "".join(line for k in (0, 1) for line in runner.log_lines(handle, "all-reduce", k))
    assert status is not None
    assert status.state is AppState.SUCCEEDED, lines
    assert lines.count("sum is 6") == 4, lines
    runner.delete(handle)
