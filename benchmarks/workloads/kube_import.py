"""Importing what the status of an app on Kubernetes needs; elsewhere, the official client."""

import subprocess
import sys
import time

from _shared import report

RUNS = 9
OURS = "import torchx.schedulers.kubernetes_scheduler, torchx.schedulers._kube.transport"
OFFICIAL = "import kubernetes.client, kubernetes.config"


def seconds(code: str) -> float:
    """Wall time of a program, the least of some runs."""
    found = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        found.append(time.perf_counter() - started)
    return min(found)


code = OURS
if subprocess.run([sys.executable, "-c", OURS], capture_output=True, check=False).returncode:
    code = OFFICIAL
report(import_s=seconds(code) - seconds("pass"))
