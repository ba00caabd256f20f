"""Completes words of every kind, with 10,000 recorded jobs; counts the slowest."""

import os
import subprocess
import sys
import time
from pathlib import Path

from _shared import report

LINES = [
    "torchx ",
    "torchx run -s ",
    "torchx run utils.",
    "torchx run -s local_cwd utils.echo --",
    "torchx run dist.ddp --",
    "torchx run -s local_cwd -cfg ",
    "torchx status ",
]


def seconds(line: str) -> float:
    """How long the shell waits for the words."""
    command = str(Path(sys.executable).parent / "torchx")
    env = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "bash",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    started = time.perf_counter()
    done = subprocess.run(
        ["sh", "-c", f"{command} 8>&1 9>/dev/null >/dev/null 2>&1"],
        env=env,
        check=True,
        stdout=subprocess.PIPE,
    )
    took_s = time.perf_counter() - started
    if not done.stdout:
        raise RuntimeError(f"nothing is offered for `{line}`")
    return took_s


def record_jobs(count: int) -> None:
    """Lists finished jobs, as local ones are listed."""
    local = Path(os.environ["TORCHX_HOME"], "local")
    local.mkdir(parents=True, exist_ok=True)
    rows = (f"job-{i}\ttorchx\tSUCCEEDED\t{i}\t{i}\tjob\n" for i in range(count))
    (local / "index").write_text("".join(rows))


record_jobs(10_000)
report(slowest_s=max(min(seconds(line) for _ in range(3)) for line in LINES))
