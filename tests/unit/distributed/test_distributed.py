"""The helpers of distributed programs, alone and in real groups of processes."""

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import torch.distributed as dist  # noqa: E402 - needs PyTorch

from torchx import distributed as helpers  # noqa: E402 - needs PyTorch
from torchx.testing.distributed import DistributedTestCase  # noqa: E402 - needs PyTorch

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

LAUNCHER_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
)  # fmt: skip


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program that no launcher started, and that leaves no group."""
    for name in LAUNCHER_VARIABLES:
        monkeypatch.setenv(name, "")  # so that what the test sets is taken back
        monkeypatch.delenv(name)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def ddp() -> Iterator[DistributedTestCase]:
    case = DistributedTestCase()
    case.setUp()
    yield case
    case.tearDown()


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    """Sets what PyTorch says about the machine's GPUs."""

    def say(available: bool, count: int, nccl: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(dist, "is_nccl_available", lambda: nccl)

    return say


# -- without a group -----------------------------------------------------------------------------


def test_without_a_launcher_a_process_is_the_only_one() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (helpers.rank(), helpers.world_size(), helpers.local_rank()) == (0, 1, 0)
    assert helpers.is_rank0()
    assert helpers.is_local_rank0()


def test_a_launcher_tells_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert (helpers.rank(), helpers.world_size(), helpers.local_rank()) == (5, 8, 1)
    assert not helpers.is_rank0()
    assert not helpers.is_local_rank0()
    assert helpers.local_cuda_device() == torch.device("cuda:1")


@pytest.mark.parametrize(
    ("available", "count", "device"),
    [(True, 1, "cuda"), (True, 0, "cpu"), (False, 1, "cpu"), (False, 0, "cpu")],
)
def test_without_a_group_the_device_is_a_gpu_if_there_is_one(gpus, available, count, device):
    from torchx.util.cuda import has_cuda_devices

    gpus(available, count)
    assert has_cuda_devices() == (device == "cuda")
    assert helpers.local_device() == torch.device(device)


def test_without_a_group_nobody_waits() -> None:
    with helpers.on_rank0_first(), helpers.on_local_rank0_first():
        pass


# -- the group -----------------------------------------------------------------------------------


@pytest.mark.parametrize("available", [True, False])
@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("nccl", [True, False])
@pytest.mark.parametrize("backend", ["auto", "nccl", "gloo"])
def test_nccl_is_chosen_with_gpus_and_nccl_only(
    gpus, monkeypatch, available, count, nccl, backend
) -> None:
    gpus(available, count, nccl)
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(dist, "init_process_group", lambda **kwargs: calls.append(kwargs))
    device = helpers.init_pg(backend, group_name="g")
    expected = backend
    if backend == "auto":
        expected = "nccl" if available and count > 0 and nccl else "gloo"
    assert calls == [{"backend": expected, "rank": 0, "world_size": 1, "group_name": "g"}]
    assert device == torch.device("cuda:0" if expected == "nccl" else "cpu")
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("localhost", "0")


def test_under_torchrun_the_group_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(dist, "init_process_group", lambda **kwargs: calls.append(kwargs))
    assert helpers.init_pg("gloo", store=None) == torch.device("cpu")
    assert calls == [{"backend": "gloo", "store": None}]
    assert "MASTER_ADDR" not in os.environ


def test_a_trivial_group_works() -> None:
    assert helpers.init_pg("gloo") == torch.device("cpu")
    assert (dist.get_backend(), dist.get_world_size()) == ("gloo", 1)
    assert helpers.local_device() == torch.device("cpu")
    value = torch.ones(1)
    dist.all_reduce(value)
    assert value.item() == 1
    with helpers.on_rank0_first():
        pass


def test_in_a_group_a_missing_local_rank_is_warned_about_once() -> None:
    helpers.init_pg("gloo")
    with pytest.warns(UserWarning, match="LOCAL_RANK is not set") as caught:
        assert helpers.local_rank() == 0
    assert len(caught) == 1
    assert caught[0].filename == __file__


# -- several processes ---------------------------------------------------------------------------


def describe(offset: int) -> dict[str, object]:
    device = helpers.init_pg("gloo")
    total = torch.tensor(helpers.rank() + offset)
    dist.all_reduce(total)
    return {
        "rank": helpers.rank(),
        "local_rank": helpers.local_rank(),
        "size": helpers.world_size(),
        "first": helpers.is_rank0(),
        "local_first": helpers.is_local_rank0(),
        "devices": [str(device), str(helpers.local_device())],
        "total": int(total),
    }


@pytest.mark.parametrize("size", [4, 8])
def test_every_process_knows_its_place(ddp, size: int) -> None:
    assert ddp.run_ddp(size, describe)(10) == {
        rank: {
            "rank": rank,
            "local_rank": rank,
            "size": size,
            "first": rank == 0,
            "local_first": rank == 0,
            "devices": ["cpu", "cpu"],
            "total": sum(range(size)) + 10 * size,
        }
        for rank in range(size)
    }


def come_first(block: str, folder: str, fail: bool) -> list[str]:
    """The names of those who went through the block before this process."""
    helpers.init_pg("gloo")
    seen: list[str] = []
    try:
        with getattr(helpers, block)():
            if helpers.rank() == 0:
                time.sleep(0.2)  # gives the others the chance to be wrong
            seen = sorted(os.listdir(folder))
            Path(folder, str(helpers.rank())).touch()
            if fail and helpers.rank() == 0:
                raise RuntimeError("rank 0 fails")
    except RuntimeError:
        seen.append("failed")
    return seen


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("block", ["on_rank0_first", "on_local_rank0_first"])
def test_rank_0_goes_first_and_lets_the_others_go_even_if_it_fails(ddp, block, fail) -> None:
    folder = ddp.mkdir("seen")
    seen = ddp.run_ddp(4, come_first)(block, str(folder), fail)
    assert seen[0] == (["failed"] if fail else [])
    assert all("0" in names for rank, names in seen.items() if rank != 0)


def two_machines(folder: str) -> list[str]:
    """Each machine has two of the four processes; the first machine waits for the second."""
    rank = int(os.environ["RANK"])
    machine = rank // 2
    os.environ.update(LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2")
    helpers.init_pg("gloo")
    seen: list[str] = []
    for turn in ("a", "b"):  # the second time with the group of the first
        with helpers.on_local_rank0_first():
            if rank == 0:
                deadline = time.monotonic() + 60
                while not Path(folder, f"{turn}3").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
            mine = (f"{turn}{2 * machine}", f"{turn}{2 * machine + 1}")
            seen += sorted(set(os.listdir(folder)) & set(mine))
            seen += [f"all of {turn}"] if rank == 0 and Path(folder, f"{turn}3").exists() else []
            Path(folder, f"{turn}{rank}").touch()
    return seen


def test_machines_do_not_wait_for_each_other(ddp) -> None:
    folder = ddp.mkdir("seen")
    assert ddp.run_ddp(4, two_machines)(str(folder)) == {
        0: ["all of a", "all of b"],
        1: ["a0", "b0"],
        2: [],
        3: ["a2", "b2"],
    }
