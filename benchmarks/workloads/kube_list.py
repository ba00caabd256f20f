"""`torchx list` of 1,000 apps that run on Kubernetes: seconds and requests."""

import json
import os
import subprocess
import sys
import time

from _kube import cluster
from _shared import app, report

from torchx.runner import get_runner

APPS = 1000
NAME = "app-%d"


def numbered(text: str, name: str) -> str:
    """The template of an app, made of the objects of one."""
    return text.replace("%", "%%").replace(name, NAME)


with cluster("--no-kubelet") as fake, get_runner() as runner:
    job = app("echo")
    job.roles[0].image = "any"
    info = runner.dryrun(job, "kubernetes", {"validate_spec": False})
    (body,) = info.request.jobs
    template = json.loads(numbered(json.dumps(body), info.request.name))
    template["status"] = {"active": 1, "ready": 1}
    fake.fill("jobs", template, APPS, group="batch")
    torchx = os.path.join(os.path.dirname(sys.executable), "torchx")
    command = [torchx, "list", "-s", "kubernetes"]
    subprocess.run(command, check=True, capture_output=True)
    fake.asked()
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took_s = time.perf_counter() - started
    assert done.stdout.count("default:app-") == APPS
    requests = len(fake.asked())
report(seconds=took_s, requests=requests)
