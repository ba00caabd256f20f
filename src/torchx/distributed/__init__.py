"""Helpers for PyTorch programs that run in several processes. Needs PyTorch."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist

from torchx.util.cuda import has_cuda_devices

Backend = Literal["nccl", "gloo", "auto"]


def _initialized() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


def local_rank() -> int:
    """Rank of this process on its machine; 0 without ``LOCAL_RANK``, with a warning in a group."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if _initialized():
        warnings.warn(
            "LOCAL_RANK is not set though the process group is initialized: taking 0;"
            " launch the program with torchrun",
            stacklevel=2,
        )
    return 0


def rank() -> int:
    """Rank of this process in the job."""
    return int(dist.get_rank()) if _initialized() else int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Number of processes of the job."""
    return int(dist.get_world_size()) if _initialized() else int(os.environ.get("WORLD_SIZE", "1"))


def is_rank0() -> bool:
    """Returns True if this is the first process of the job."""
    return rank() == 0


def is_local_rank0() -> bool:
    """Returns True if this is the first process on its machine."""
    return local_rank() == 0


def local_cuda_device() -> torch.device:
    """The GPU of this process."""
    return torch.device(f"cuda:{local_rank()}")


def local_device() -> torch.device:
    """The device of this process: its GPU if the group works on GPUs, else the CPU.

    Without a group: a GPU if there is one.
    """
    if _initialized():
        return local_cuda_device() if dist.get_backend() == "nccl" else torch.device("cpu")
    return torch.device("cuda" if has_cuda_devices() else "cpu")


def init_pg(backend: Backend = "auto", **kwargs: Any) -> torch.device:
    """Initializes the default process group; one of a single process outside of torchrun.

    Args:
        backend: ``auto`` takes nccl if it and a GPU are there, else gloo.
        kwargs: go to ``torch.distributed.init_process_group``.

    Returns:
        The device that goes with the backend.
    """
    chosen = backend
    if backend == "auto":
        gpus = torch.cuda.is_available() and torch.cuda.device_count() > 0
        chosen = "nccl" if gpus and dist.is_nccl_available() else "gloo"
    if dist.is_torchelastic_launched():
        dist.init_process_group(backend=chosen, **kwargs)
    else:
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = "0"
        dist.init_process_group(backend=chosen, rank=0, world_size=1, **kwargs)
    return local_cuda_device() if chosen == "nccl" else torch.device("cpu")


@contextmanager
def on_rank0_first() -> Iterator[None]:
    """Lets the first process go through the block before all others."""
    with _first(is_rank0()):
        yield


@contextmanager
def on_local_rank0_first() -> Iterator[None]:
    """Lets the first process of each machine go through the block before the others of it.

    Machines do not wait for each other if the launcher sets how many processes each has
    (``LOCAL_WORLD_SIZE``, as torchrun does).
    """
    with _first(is_local_rank0(), _machine_group()):
        yield


@contextmanager
def _first(mine: bool, group: Any = None) -> Iterator[None]:
    grouped = _initialized()
    if grouped and not mine:
        dist.barrier(group)
    try:
        yield
    finally:
        if grouped and mine:
            dist.barrier(group)


_machine_groups: list[tuple[Any, Any]] = []
"""The default group, and the group of this machine created within it; ``None`` before."""


def _machine_group() -> Any:
    """Returns the group of this machine's processes; ``None``, for all processes, if unknown."""
    size = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
    if not _initialized() or not 0 < size < world_size() or not dist.is_gloo_available():
        return None
    if not _machine_groups or _machine_groups[0][0] is not dist.group.WORLD:
        first = rank() - local_rank()  # torchrun numbers the processes of a machine consecutively
        group = dist.new_group(
            list(range(first, first + size)), backend="gloo", use_local_synchronization=True
        )
        _machine_groups[:] = [(dist.group.WORLD, group)]
    return _machine_groups[0][1]
