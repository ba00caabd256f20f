"""A trainer that records what it did. Run it in its folder with::

mkdir -p /tmp/torchx_jobs
torchx run dist.ddp -j 1x2 --script main.py -- --epochs 5
torchx tracker list jobs

``.torchxconfig`` names the tracker and its configuration, ``fsspec.conf`` the place of the records.
Without them, or without a launcher, the same program records nothing and trains all the same.
``entry_points.txt`` is how a distribution registers a tracker; TorchX registers this one itself.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed import barrier, destroy_process_group
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

from torchx.distributed import init_pg, is_rank0
from torchx.tracker import app_run_from_env


def parse_args(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="trains and records it")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--output_path", default="output", help="folder for model and metrics")
    return parser.parse_args(argv)


def make_digits(count: int = 512) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of 28 x 28 pixels in ten classes, each a pattern of its own with noise over it."""
    random = torch.Generator().manual_seed(1)  # not that of the weights
    patterns = torch.rand(10, 28 * 28, generator=random)
    labels = torch.randint(10, (count,), generator=random)
    return patterns[labels] + torch.randn(count, 28 * 28, generator=random) / 2, labels


def write_metrics(folder: Path, losses: list[float]) -> None:
    """For TensorBoard where it is installed, else as a table."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        lines = [f"{epoch},{loss}\n" for epoch, loss in enumerate(losses)]
        (folder / "loss.csv").write_text("".join(["epoch,loss\n", *lines]))
        return
    with SummaryWriter(str(folder)) as writer:
        for epoch, loss in enumerate(losses):
            writer.add_scalar("loss", loss, epoch)


def train(epochs: int, lr: float, device: torch.device) -> tuple[nn.Module, list[float]]:
    """The trained model, and the loss of each epoch."""
    torch.manual_seed(0)
    images, labels = (tensor.to(device) for tensor in make_digits())
    model = DistributedDataParallel(nn.Linear(28 * 28, 10).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr)
    losses = []
    for _ in range(epochs):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model.module, losses


@record
def main() -> None:
    """Trains in all processes; the first one records."""
    args = parse_args(sys.argv[1:])
    model, losses = train(args.epochs, args.lr, init_pg())
    if is_rank0():
        output = Path(args.output_path).resolve()
        write_metrics(output / "tensorboard", losses)
        torch.save(model.state_dict(), output / "model.pt")
        run = app_run_from_env()
        run.add_metadata(epochs=args.epochs, lr=args.lr, loss=losses[-1])
        run.add_artifact("tensorboard", str(output / "tensorboard"))
        run.add_artifact("model", str(output / "model.pt"), {"classes": 10})
        sys.stdout.write(f"{run.job_id()}: loss went from {losses[0]:.3f} to {losses[-1]:.3f}\n")
    # nobody leaves while others work: PyTorch may still release what the last step sent, and a
    # process that ends meanwhile is aborted
    barrier()
    destroy_process_group()


if __name__ == "__main__":
    main()
