"""Following the log of a quiet Slurm job for 10 s: calls of Slurm's programs, and CPU time."""

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from _shared import report, running_job

from torchx.runner import get_runner

SECONDS = 10

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    os.chdir(folder)
    jobs = [running_job(1, name)]
    (folder / "answer").write_text(json.dumps({"jobs": jobs}))
    for program in ("squeue", "sacct", "scontrol"):
        path = folder / program
        path.write_text(f"#!/bin/sh\necho call >>{folder}/calls\ncat {folder}/answer\n")
        path.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    (folder / "slurm-1-w-0.out").write_text("line\n")
    (folder / "slurm-1-w-0.err").write_text("")
    with get_runner() as runner:
        lines = iter(runner.log_lines("slurm://bench/1", "w", 0, should_tail=True))
        follower = threading.Thread(target=lambda: list(lines), daemon=True)
        before = len((folder / "calls").read_text().split())
        cpu, children = time.process_time(), os.times()
        follower.start()
        time.sleep(SECONDS)
        now = os.times()
        ours = time.process_time() - cpu
        theirs = now.children_user + now.children_system
        theirs -= children.children_user + children.children_system
        calls = len((folder / "calls").read_text().split()) - before
        report(calls_per_min=calls * 60 / SECONDS, cpu_ms_per_s=1000 * (ours + theirs) / SECONDS)
        sys.stdout.flush()
        os._exit(0)  # the job never ends, and neither would its follower
