"""Watching 100 LSF apps for 12 s: calls of LSF's programs a minute, with our own bjobs."""

import json
import os
import tempfile
import time
from pathlib import Path

from _shared import report

from torchx.runner import get_runner
from torchx.specs import AppState

SECONDS = 12
APPS = 100
PROGRAM = """\
#!/bin/sh
echo call >>{folder}/calls
cat {folder}/answer
"""


def record(i: int) -> dict[str, str]:
    """What bjobs tells of an app that runs."""
    name, job_id = f"app-{i}.0.w[1]", str(i)
    known = {"JOBID": job_id, "JOBINDEX": "1", "STAT": "RUN", "JOB_NAME": name}
    return {**known, "EXEC_HOST": "n1", "JOB_DESCRIPTION": ""}


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    records = [record(i) for i in range(1, APPS + 1)]
    answer = {"COMMAND": "bjobs", "JOBS": APPS, "RECORDS": records}
    (folder / "answer").write_text(json.dumps(answer))
    for program in ("bjobs", "bhist"):
        path = folder / program
        path.write_text(PROGRAM.format(folder=folder))
        path.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    looks = 0
    with get_runner() as runner:
        started = time.monotonic()
        while time.monotonic() - started < SECONDS:
            for i in range(1, APPS + 1):
                status = runner.status(f"lsf://bench/app-{i}")
                assert status is not None
                assert status.state is AppState.RUNNING
                looks += 1
                if time.monotonic() - started >= SECONDS:
                    break
            time.sleep(0.1)
        took = time.monotonic() - started
    calls = len((folder / "calls").read_text().split())
report(calls_per_min=calls * 60 / took, looks_per_s=looks / took)
