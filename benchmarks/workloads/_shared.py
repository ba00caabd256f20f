"""What the workloads share. They run in any venv with TorchX, so only its public names are used."""

import json
import sys
from typing import Any

from torchx.specs import AppDef, Resource, Role


def app(program: str, *args: str, replicas: int = 1) -> AppDef:
    """An app of one role ``w``."""
    return AppDef(
        "bench",
        [
            Role(
                "w",
                "",
                entrypoint=program,
                args=[*args],
                num_replicas=replicas,
                resource=Resource(cpu=1, gpu=0, memMB=1),
            )
        ],
    )


def running_job(job_id: int, folder: str) -> dict[str, Any]:
    """A Slurm job as squeue gives it, of a replica ``w-0`` that runs in a folder."""
    return {
        "job_id": job_id,
        "name": "w-0",
        "job_state": ["RUNNING"],
        "het_job_id": {"set": False, "number": 0},
        "job_resources": {"nodes": {"list": "n1", "allocation": []}},
        "nodes": "n1",
        "current_working_directory": folder,
        "command": "s.sh",
        "user_name": "me",
    }


def report(**figures: Any) -> None:
    """Prints the figures of this run as the last line of output."""
    sys.stdout.write(f"\n{json.dumps(figures)}\n")


def percentile(values: list[float], percent: int) -> float:
    """The value below which that share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
