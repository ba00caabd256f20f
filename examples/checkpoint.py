"""Counts, saves its state when it is told to end, and goes on from there when it is started again.

Run it on Slurm with::

torchx run -s slurm -c signal=USR1@60,time=10 examples/checkpoint.py:count --restarts 3
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from torchx import specs

REQUEUE = 75
"""Any exit code but 0 makes Slurm start the job again, as long as retries are left."""


def count(steps: int = 10, step_s: float = 1.0, restarts: int = 3) -> specs.AppDef:
    """Counts to a number, over as many restarts as it takes.

    Args:
        steps: number to count to
        step_s: duration of a step in seconds
        restarts: how often the job may be started again
    """
    return specs.AppDef(
        name="count",
        roles=[
            specs.Role(
                name="counter",
                image="",
                entrypoint=sys.executable,  # no shell around it: that would die of the signal
                args=[os.path.abspath(__file__), "--steps", str(steps), "--step_s", str(step_s)],
                max_retries=restarts,
                resource=specs.Resource(cpu=1, gpu=0, memMB=64),
            )
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--step_s", type=float, default=1.0, help="duration of a step in seconds")
    parser.add_argument("--file", type=Path, default=Path("checkpoint.json"))
    args = parser.parse_args()

    told: list[int] = []
    # before the time limit (option `signal`), and before a preemption
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, _: told.append(number))

    first = 0
    if args.file.exists():
        first = json.loads(args.file.read_text())["step"]
    attempt = os.environ.get("TORCHX_ATTEMPT", "0")
    sys.stdout.write(f"attempt {attempt} begins at step {first}\n")
    for step in range(first, args.steps):
        sys.stdout.write(f"step {step}\n")
        sys.stdout.flush()
        time.sleep(args.step_s)
        if told:
            save(args.file, {"step": step + 1})
            sys.stdout.write(f"saved after step {step}, told by {signal.Signals(told[0]).name}\n")
            sys.exit(REQUEUE)
    sys.stdout.write("done\n")


def save(path: Path, state: dict[str, int]) -> None:
    """Writes the file as a whole or not at all: this process may be killed at any time."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state))
    os.replace(new, path)


if __name__ == "__main__":
    main()
