"""Answers of squeue and sacct in the shapes of each version, cut down to what is read.

Those of Slurm 22.05 were recorded on a cluster (``scripts/engines/slurm``) and are whole, in
``recorded/22.05``. What is in this module was not recorded: it is written by hand, in the shapes
that Slurm documents for the job records of its versions and in its manual pages. That is so for all
other versions, and for what that cluster cannot show: a node that fails, a preemption, memory that
runs out.
"""

import json
from pathlib import Path
from typing import Any

US = "\x1f"
RECORDED = Path(__file__).parent / "recorded" / "22.05"


def recorded(name: str) -> str:
    """What a program of Slurm 22.05 printed."""
    return (RECORDED / name).read_text(encoding="utf-8")


def _set(number: int, is_set: bool = True) -> dict[str, Any]:
    return {"set": is_set, "infinite": False, "number": number}


def job_21_08(job_id: int, name: str, state: str, **more: Any) -> dict[str, Any]:
    """21.08 and 22.05: plain numbers, the state is a text."""
    return {
        "job_id": job_id,
        "het_job_id": 0,
        "het_job_offset": 0,
        "name": name,
        "job_state": state,
        "state_reason": "None",
        "user_name": "me",
        "restart_cnt": 0,
        "nodes": "n1",
        "current_working_directory": "/work",
        "command": "/work/torchx-sbatch.sh torchx:tok:train",
        "job_resources": {
            "nodes": "n1",
            "allocated_nodes": [{"nodename": "n1", "cpus_used": 4, "memory_allocated": 64}],
        },
        **more,
    }


def job_23_02(job_id: int, name: str, state: str, **more: Any) -> dict[str, Any]:
    """23.02: numbers that may be unset; nodes by their index."""
    job = job_21_08(job_id, name, state)
    job["het_job_id"] = _set(0, False)
    job["het_job_offset"] = _set(0, False)
    job["job_resources"]["allocated_nodes"] = {
        "0": {"nodename": "n1", "cpus_used": 4, "memory_allocated": 64}
    }
    return {**job, **more}


def job_23_11(job_id: int, name: str, state: str, **more: Any) -> dict[str, Any]:
    """23.11: the state is a list, with its flags."""
    return {**job_23_02(job_id, name, state), "job_state": [state], **more}


def job_24_11(job_id: int, name: str, state: str, **more: Any) -> dict[str, Any]:
    """24.11: nodes have a list and an allocation, memory is in bytes of another unit."""
    job = job_23_11(job_id, name, state)
    job["job_resources"] = {
        "nodes": {
            "count": 1,
            "list": "n1",
            "allocation": [
                {"name": "n1", "cpus": {"count": 8, "used": 4}, "memory": {"allocated": 65536}}
            ],
        }
    }
    return {**job, **more}


VERSIONS = {"22.05": job_21_08, "23.02": job_23_02, "23.11": job_23_11, "24.11": job_24_11}


def squeue(*jobs: dict[str, Any]) -> str:
    """What ``squeue --json`` prints."""
    return json.dumps({"meta": {}, "errors": [], "jobs": [*jobs]})


def het(make: Any, leader: int, *states: str) -> list[dict[str, Any]]:
    """The components of a heterogeneous job, of roles ``a``, ``b`` and so on."""
    jobs = []
    for i, state in enumerate(states):
        job = make(leader + i, f"{'abcdef'[i]}-0", state)
        plain = isinstance(job["het_job_id"], int)
        job["het_job_id"] = leader if plain else _set(leader)
        job["het_job_offset"] = i if plain else _set(i)
        jobs.append(job)
    return jobs


def squeue_text_20_11(job_id: str, name: str, state: str, reason: str = "None") -> str:
    """20.11: no JSON; ``squeue --format`` with our fields, the same in all later versions."""
    command = "/work/torchx-sbatch.sh torchx:tok:train"
    return US.join([job_id, state, reason, "me", "n1", "/work", command, name]) + "\n"


def sacct_20_11(*rows: tuple[str, str, str, str]) -> str:
    """20.11 does not know the field SubmitLine; each row is id, state, exit code and name."""
    lines = [("JobID", "State", "ExitCode", "WorkDir", "NodeList", "JobName")]
    lines += [(job_id, state, code, "/work", "n1", name) for job_id, state, code, name in rows]
    return "".join(US.join(line) + "\n" for line in lines)


def sacct_21_08(*rows: tuple[str, str, str, str]) -> str:
    """21.08 to 24.11."""
    lines = [("JobID", "State", "ExitCode", "WorkDir", "NodeList", "SubmitLine", "JobName")]
    lines += [
        (job_id, state, code, "/work", "n1", _LINE, name) for job_id, state, code, name in rows
    ]
    return "".join(US.join(line) + "\n" for line in lines)


SACCT_VERSIONS = {"20.11": sacct_20_11, "21.08": sacct_21_08}
SACCT_ENDS = {
    "BOOT_FAIL": "0:0",
    "CANCELLED by 1001": "0:15",
    "COMPLETED": "0:0",
    "DEADLINE": "0:0",
    "FAILED": "3:0",
    "NODE_FAIL": "0:0",
    "OUT_OF_MEMORY": "0:125",
    "PREEMPTED": "0:0",
    "TIMEOUT": "0:0",
    "REQUEUED": "0:0",
}
"""How sacct tells the end of a job; REQUEUED is shown of an earlier run only."""

SACCT_HEADER = "JobID|State|ExitCode|WorkDir|NodeList|SubmitLine|JobName\n"
_LINE = "sbatch --parsable /work/torchx-sbatch.sh torchx:tok:train"
SACCT_ONE = f"""\
{SACCT_HEADER}12|COMPLETED|0:0|/work|n[1-2]|{_LINE}|train-0
12.batch|COMPLETED|0:0||n1||batch
12.extern|COMPLETED|0:0||n[1-2]||extern
12.0|COMPLETED|0:0||n[1-2]|srun sh|sh
"""
SACCT_HET = f"""\
{SACCT_HEADER}12+0|COMPLETED|0:0|/work|n1|{_LINE}|a-0
12+0.batch|FAILED|1:0||n1||batch
12+0.0|COMPLETED|0:0||n1|srun sh|sh
12+1|FAILED|1:0|/work|n2|{_LINE}|b-0
12+1.0|FAILED|1:0||n2|srun sh|sh
123|RUNNING|0:0|/work|n3|{_LINE}|other-0
"""
SACCT_CANCELLED = f"""\
{SACCT_HEADER}12|CANCELLED by 1001|0:0|/work|None assigned|{_LINE}|train-0
"""
SACCT_DEFAULT_FIELDS = """\
JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode
1853+0|a-0|debug|me|1|COMPLETED|0:0
1853+0.batch|batch||me|1|COMPLETED|0:0
1853+1|b-0|debug|me|1|CANCELLED+|0:0
"""
