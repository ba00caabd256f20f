"""From the moment a replica prints a line to the moment a follower has it."""

import sys
import time

from _shared import app, percentile, report

from torchx.runner import get_runner

# CLOCK_MONOTONIC is one clock for all processes of a machine
PRINT_TIMES = """
import random, time
for _ in range(150):
    time.sleep(random.uniform(0.01, 0.05))
    print(time.monotonic(), flush=True)
"""

took_ms = []
with get_runner() as runner:
    handle = runner.run(app(sys.executable, "-c", PRINT_TIMES), "local_cwd")
    for line in runner.log_lines(handle, "w", 0, should_tail=True):
        took_ms.append((time.monotonic() - float(line)) * 1000)
del took_ms[:10]  # the follower was still starting
report(p50_ms=percentile(took_ms, 50), p95_ms=percentile(took_ms, 95))
