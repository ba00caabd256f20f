"""Dry runs for Kubernetes of 1 role of 10,000 replicas, as Jobs and for Volcano; memory of one."""

import time
import tracemalloc

from _shared import app, report

from torchx.runner import get_runner

job = app("echo", "${replica_id}", replicas=10_000)
small = app("echo")
for role in (*job.roles, *small.roles):
    role.image = "any"
volcano = {"queue": "default", "validate_spec": False}
figures = {}
with get_runner() as runner:
    try:
        jobs = {"job_api": "job", "validate_spec": False}
        runner.dryrun(small, "kubernetes", jobs)
    except Exception:  # noqa: BLE001 - releases that have no Jobs do not agree in the error
        jobs = volcano
    for name, cfg in (("job", jobs), ("volcano", volcano)):
        runner.dryrun(small, "kubernetes", cfg)
        started = time.perf_counter()
        info = runner.dryrun(job, "kubernetes", cfg)
        rendered = time.perf_counter()
        text = str(info)
        figures[f"{name}_s"] = rendered - started
        figures[f"{name}_rendered_s"] = time.perf_counter() - started
        assert "echo" in text
    tracemalloc.start()
    info = runner.dryrun(job, "kubernetes", jobs)
    figures["job_mib"] = tracemalloc.get_traced_memory()[1] / 2**20
report(**figures)
