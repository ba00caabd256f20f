"""Dry run of a role of 10,000 instances for SageMaker, rendered."""

import statistics
import time

from _shared import app, report

from torchx.runner import get_runner

ROUNDS = 9
CFG = {"role": "Trainer", "launch": "container"}
one = app("echo", "${replica_id}", replicas=10_000)
one.roles[0].image = "i:1"
taken = []
with get_runner() as runner:
    runner.dryrun(one, "aws_sagemaker", CFG)
    for _ in range(ROUNDS):
        started = time.perf_counter()
        assert "InstanceCount: 10000" in str(runner.dryrun(one, "aws_sagemaker", CFG))
        taken.append(time.perf_counter() - started)
report(seconds=statistics.median(taken))
