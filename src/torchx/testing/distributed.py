"""A test case that runs functions in several processes under torchelastic. Needs PyTorch."""

from collections.abc import Callable
from typing import TypeVar

from torchx.testing.fixtures import TestWithTmpDir

__all__ = ["DistributedTestCase"]

Ret = TypeVar("Ret")


class DistributedTestCase(TestWithTmpDir):
    """Runs functions as the ranks of a job of one node."""

    def run_ddp(self, world_size: int, fn: Callable[..., Ret]) -> Callable[..., dict[int, Ret]]:
        """A launcher of ``fn`` in that many processes; called, it gives results by rank.

        ``fn`` is importable from another process and makes its own process group. A rank that
        fails makes the launcher raise torchelastic's ``ChildFailedError``.

        Raises:
            ModuleNotFoundError: if PyTorch is not installed.
        """
        try:
            from torch.distributed.launcher.api import (  # type: ignore[import-not-found,unused-ignore]  # PyTorch is optional
                LaunchConfig,
                elastic_launch,
            )
        except ModuleNotFoundError as err:
            if (err.name or "").partition(".")[0] != "torch":
                raise
            msg = "`run_ddp` needs PyTorch, install it with: pip install torch"
            raise ModuleNotFoundError(msg, name="torch") from None

        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=world_size,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=0.01,
        )
        launch: Callable[..., dict[int, Ret]] = elastic_launch(config, fn)
        return launch
