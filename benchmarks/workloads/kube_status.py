"""`torchx status` of a running app of 100 replicas on Kubernetes: CPU time and requests."""

import json
import os
import subprocess
import sys

from _kube import cluster
from _shared import app, report

from torchx.runner import get_runner
from torchx.specs import AppState

RUNS = 5
LASTS = {"fake-kube/behaviour": json.dumps({"run_s": 600})}


def cpu_s(*command: str) -> float:
    """CPU time of a program, the least of some runs."""
    found = []
    for _ in range(RUNS):
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0
        found.append(used.ru_utime + used.ru_stime)
    return min(found)


with cluster() as fake, get_runner() as runner:
    job = app("echo", replicas=100)
    job.roles[0].image = "any"
    job.roles[0].metadata["kubernetes"] = {"metadata": {"annotations": LASTS}}
    handle = runner.run(job, "kubernetes", {"validate_spec": False, "grace_s": 0})
    for _ in range(10_000):
        status = runner.status(handle)
        assert status is not None
        states = {r.state for role in status.roles for r in role.replicas}
        if states == {AppState.RUNNING}:
            break
    torchx = os.path.join(os.path.dirname(sys.executable), "torchx")
    fake.asked()
    subprocess.run([torchx, "status", handle], check=True, stdout=subprocess.DEVNULL)
    requests = len(fake.asked())
    bare_s = cpu_s("-c", "pass")
    used_s = cpu_s(torchx, "status", handle)
    runner.delete(handle)
report(requests=requests, times_bare=used_s / bare_s, cpu_ms=used_s * 1000)
