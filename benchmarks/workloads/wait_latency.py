"""From the exit of the only replica to the return of ``wait``, which polls once a second."""

import sys
import time
from pathlib import Path

from _shared import app, percentile, report

from torchx.runner import get_runner

NOTE_TIME_AND_EXIT = """
import os, sys, time
time.sleep(float(sys.argv[1]))
with open(sys.argv[2], "w") as file:
    file.write(str(time.monotonic()))
os._exit(0)
"""

took_ms = []
with get_runner() as runner:
    for i in range(10):
        path = Path(f"ended-{i}").absolute()
        job = app(sys.executable, "-c", NOTE_TIME_AND_EXIT, str(0.1 + i / 20), str(path))
        handle = runner.run(job, "local_cwd")
        runner.wait(handle, wait_interval=1)
        took_ms.append((time.monotonic() - float(path.read_text())) * 1000)
report(p50_ms=percentile(took_ms, 50), p95_ms=percentile(took_ms, 95))
