"""Dry runs of 10,000 replicas for LSF, rendered, as a multiple of those for Slurm."""

import statistics
import time

from _shared import app, report

from torchx.runner import get_runner

ROUNDS = 9
one = app("echo", "${replica_id}", replicas=10_000)
times: dict[str, list[float]] = {"slurm": [], "lsf": []}
with get_runner() as runner:
    for name in times:
        runner.dryrun(app("echo"), name)
    for _ in range(ROUNDS):
        for name, taken in times.items():
            started = time.perf_counter()
            text = str(runner.dryrun(one, name))
            taken.append(time.perf_counter() - started)
            assert "echo" in text
slurm_s, lsf_s = (statistics.median(taken) for taken in times.values())
report(times_slurm=lsf_s / slurm_s, lsf_ms=lsf_s * 1000)
