"""Dry runs for Slurm, and rendering them: 1 role of 10,000 replicas, and 100 roles of 100."""

import sys
import time
import tracemalloc

from _shared import app, report

from torchx.runner import get_runner
from torchx.specs import AppDef, Role

one = app("echo", "${replica_id}", replicas=10_000)
roles = [Role(f"r{i}", "", entrypoint="echo", args=["${replica_id}"]) for i in range(100)]
for role in roles:
    role.num_replicas = 100
    role.resource = one.roles[0].resource
many = AppDef("bench", roles)
figures = {}
with get_runner() as runner:
    runner.dryrun(app("echo"), "slurm")
    for name, job in (("one_role", one), ("many_roles", many)):
        started = time.perf_counter()
        text = str(runner.dryrun(job, "slurm"))
        figures[f"{name}_s"] = time.perf_counter() - started
        assert "echo" in text
    if "--memory" in sys.argv:
        tracemalloc.start()
        text = str(runner.dryrun(one, "slurm"))
        figures["one_role_mib"] = tracemalloc.get_traced_memory()[1] / 2**20
report(**figures)
