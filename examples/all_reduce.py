"""Adds up the ranks of all processes with ``torch.distributed``. Run it with::

torchx run dist.ddp -j 2x2 --script examples/all_reduce.py
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail_rank", type=int, default=-1, help="rank that raises an error")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.barrier()  # all are connected: who fails from here on is noticed by the others at once
    if rank == args.fail_rank:
        raise RuntimeError(f"rank {rank} was told to fail")
    total = torch.tensor([rank])
    dist.all_reduce(total)
    assert total.item() == size * (size - 1) // 2
    sys.stdout.write(
        f"rank {rank} of {size} on node {os.environ['GROUP_RANK']}: sum is {total.item()}\n"
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
