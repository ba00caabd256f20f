"""Evaluates the booth function and stores the result, for experiments with optimizers."""

import argparse

from torchx.runtime.tracking import FsspecResultTracker


def booth(x1: float, x2: float) -> float:
    """Minimum 0 at (1, 3)."""
    return (x1 + 2 * x2 - 7) ** 2 + (2 * x1 + x2 - 5) ** 2


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Options of ``utils.booth``; those of this process for ``None``."""
    parser = argparse.ArgumentParser(description="evaluates the booth function")
    parser.add_argument("--x1", type=float, required=True)
    parser.add_argument("--x2", type=float, required=True)
    parser.add_argument("--trial_idx", type=int, default=0, help="number of the trial")
    parser.add_argument(
        "--tracker_base", default="/tmp/torchx-utils-booth", help="URI of the results' folder"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Command line of ``utils.booth``."""
    args = parse_args(argv)
    tracker = FsspecResultTracker(args.tracker_base)
    tracker[args.trial_idx] = {"booth_eval": booth(args.x1, args.x2)}


if __name__ == "__main__":
    main()
