"""Watching 100 Slurm jobs for 12 s: calls of Slurm's programs a minute, with our own squeue."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from _shared import report, running_job

from torchx.runner import get_runner
from torchx.specs import AppState

SECONDS = 12
JOBS = 100
PROGRAM = """\
#!/bin/sh
echo call >>{folder}/calls
{body}
"""

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    jobs = [running_job(i, name) for i in range(1, JOBS + 1)]
    (folder / "answer").write_text(json.dumps({"jobs": jobs}))
    bodies = {"sacct": "exit 1", "scontrol": "exit 1"}
    bodies["squeue"] = (  # some releases ask for one job at a time
        f'for a in "$@"; do case $last in -j) id=$a ;; esac; last=$a; done; '
        f'[ -n "$id" ] && {sys.executable} {folder}/one.py $id || cat {folder}/answer'
    )
    (folder / "one.py").write_text(
        f"import json, sys\njobs = json.load(open('{folder}/answer'))['jobs']\n"
        "print(json.dumps({'jobs': [j for j in jobs if str(j['job_id']) == sys.argv[1]]}))\n"
    )
    for program, body in bodies.items():
        path = folder / program
        path.write_text(PROGRAM.format(folder=folder, body=body))
        path.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    looks = 0
    with get_runner() as runner:
        started = time.monotonic()
        while time.monotonic() - started < SECONDS:
            for i in range(1, JOBS + 1):
                status = runner.status(f"slurm://bench/{i}")
                assert status is not None
                assert status.state is AppState.RUNNING
                looks += 1
                if time.monotonic() - started >= SECONDS:
                    break
            time.sleep(0.1)
        took = time.monotonic() - started
    calls = len((folder / "calls").read_text().split())
report(calls_per_min=calls * 60 / took, looks_per_s=looks / took)
