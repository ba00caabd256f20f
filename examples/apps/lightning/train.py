"""Trains an image classifier with Lightning, in one process or many. Run it with::

torchx run dist.ddp -j 1x2 --script lightning/train.py -- --epochs=1 --output_path=DIR

Needs lightning, and Pillow for ``--data_path``. The last checkpoint is ``last.ckpt`` in the output
path, which can be any URL that fsspec can write to.
"""

import argparse
import os
import sys

from data import Images
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from model import Classifier  # beside this script, as are data and profiler
from profiler import LoggingProfiler


def parse_args(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="trains an image classifier")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-2, help="learning rate")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_samples", type=int, default=32, help="how many images to train on")
    parser.add_argument("--data_path", help="URL of the images; they are made up if not given")
    parser.add_argument("--load_path", help="URL of a checkpoint to go on from")
    parser.add_argument(
        "--output_path", help="URL of the folder for checkpoints; none if not given"
    )
    parser.add_argument("--log_path", default="/tmp", help="folder for metrics")
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[8, 16], help="channels of each convolution"
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Trains."""
    args = parse_args(argv)
    seed_everything(0, verbose=False)
    data = Images(args.data_path, args.batch_size, args.num_samples)
    model = (
        Classifier.load_from_checkpoint(args.load_path, map_location="cpu")
        if args.load_path
        else Classifier(data.num_classes, args.layers, args.lr)
    )
    callbacks = []
    if args.output_path:
        callbacks.append(
            ModelCheckpoint(
                dirpath=args.output_path,
                save_last=True,
                save_top_k=0,
                enable_version_counter=False,  # a job that is started again replaces `last.ckpt`
            )
        )
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # as torchrun tells
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    trainer = Trainer(
        max_epochs=args.epochs,
        devices=processes,
        num_nodes=nodes,
        strategy="ddp" if processes * nodes > 1 else "auto",
        callbacks=callbacks,
        enable_checkpointing=bool(callbacks),
        logger=CSVLogger(args.log_path, name="lightning_logs"),
        log_every_n_steps=1,
        profiler=LoggingProfiler(),
        enable_progress_bar=False,  # a log is no place for one
    )
    trainer.fit(model, datamodule=data)
    if trainer.is_global_zero:
        metrics = {name: round(float(v), 4) for name, v in trainer.callback_metrics.items()}
        sys.stdout.write(f"trained for {trainer.current_epoch} epochs: {metrics}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
