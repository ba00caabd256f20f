"""Dry run of 1 role of 10,000 replicas, and rendering it as text."""

import time

from _shared import app, report

from torchx.runner import get_runner

job = app("echo", "${replica_id}", replicas=10_000)
with get_runner() as runner:
    runner.dryrun(app("echo"), "local_cwd")
    started = time.perf_counter()
    info = runner.dryrun(job, "local_cwd")
    rendered = time.perf_counter()
    text = str(info)
    ended = time.perf_counter()
assert "9999" in text
report(dryrun_s=rendered - started, render_s=ended - rendered)
