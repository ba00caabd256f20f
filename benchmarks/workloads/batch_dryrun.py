"""Dry run of a role of 10,000 nodes for AWS Batch, rendered."""

import statistics
import time

from _shared import app, report

from torchx.runner import get_runner

ROUNDS = 9
one = app("echo", "${replica_id}", replicas=10_000)
one.roles[0].image = "i:1"
taken = []
with get_runner() as runner:
    runner.dryrun(one, "aws_batch", {"queue": "q"})
    for _ in range(ROUNDS):
        started = time.perf_counter()
        assert "numNodes: 10000" in str(runner.dryrun(one, "aws_batch", {"queue": "q"}))
        taken.append(time.perf_counter() - started)
report(seconds=statistics.median(taken))
