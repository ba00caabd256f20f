"""Runs 200 replicas of ``/bin/true`` and waits for them; counts what the launcher holds."""

import os
import time

from _shared import app, report

from torchx.runner import get_runner

with get_runner() as runner:
    started = time.perf_counter()
    handle = runner.run(app("/bin/true", replicas=200), "local_cwd")
    threads = len(os.listdir("/proc/self/task"))
    files = len(os.listdir("/proc/self/fd"))
    status = runner.wait(handle, wait_interval=0.1)
    ended = time.perf_counter()
assert status is not None
assert status.state.name == "SUCCEEDED"
report(seconds=ended - started, threads=threads, open_files=files)
