"""Following 1,000 pods at once that say 1,000 lines each, in pieces of ten lines."""

import json
import resource
import sys
import threading
import time
from collections import Counter

from _kube import cluster
from _shared import app, report

from torchx.schedulers.kubernetes_scheduler import create_scheduler

PODS, LINES = 1000, 1000
SAYS = {"fake-kube/behaviour": json.dumps({"log_lines": LINES, "run_s": 20})}
counts: Counter[int] = Counter()
broken = threads = 0
with cluster() as fake:
    scheduler = create_scheduler("bench")
    job = app("echo", replicas=PODS)
    job.roles[0].image = "any"
    job.roles[0].metadata["kubernetes"] = {"metadata": {"annotations": SAYS}}
    app_id = scheduler.submit(job, {"validate_spec": False, "grace_s": 0})
    while len(fake.pods()) < PODS:
        time.sleep(0.1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = last = 0.0
    replicas = [("w", k) for k in range(PODS)]
    for block in scheduler.log_blocks(app_id, replicas, should_tail=True):
        started = started or time.perf_counter()
        found = block.text.count("\n")
        broken += not block.text.endswith("\n")
        counts[block.replica] += found
        if not block.replica % 100:
            threads = max(threads, threading.active_count())
        last = time.perf_counter()
    scheduler.delete(app_id)
    scheduler.close()
total = sum(counts.values())
lost = sum(abs(LINES - counts[k]) for k in range(PODS))
mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
sys.stderr.write(f"{mib - before / 1024:.0f} MiB more than before\n")
report(
    lines_per_s=total / (last - started),
    threads=threads,
    mb=mib * 2**20 / 1e6,
    lost_or_doubled=lost,
    broken=broken,
)
