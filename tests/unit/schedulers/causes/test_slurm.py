"""The cause of a wait or a failure on Slurm, from its records."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check
from tests.unit.schedulers.slurm import samples
from torchx.schedulers.slurm_scheduler import _parse as parse
from torchx.schedulers.slurm_scheduler._causes import RULES
from torchx.schedulers.slurm_scheduler._states import JobView, SlurmSnapshot, snapshot

CODES = "https://slurm.schedmd.com/job_reason_codes.html"
STATES = "https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES"
HELD = "recorded 22.05, squeue-held.json"
FAILED = "recorded 22.05, squeue-failed.json"

WAITS = [
    ("quota", "AssocGrpCpuLimit"),
    ("quota", "AssocMaxJobsLimit"),
    ("quota", "QOSMaxJobsPerUserLimit"),
    ("quota", "QOSGrpNodeLimit"),
    ("quota", "MaxCpuPerAccount"),
    ("bad-option", "InvalidQOS"),
    ("bad-option", "InvalidAccount"),
    ("bad-option", "AccountNotAllowed"),
    ("bad-option", "BadConstraints"),
    ("begin-time", "BeginTime"),
    ("dependency", "Dependency"),
    ("dependency", "DependencyNeverSatisfied"),
    ("held", "JobHeldAdmin"),
    ("held", "JobHeldUser"),
    ("queue-limit", "PartitionConfig"),
    ("queue-limit", "PartitionDown"),
    ("queue-limit", "PartitionInactive"),
    ("queue-limit", "PartitionNodeLimit"),
    ("queue-limit", "PartitionTimeLimit"),
    ("unschedulable", "ReqNodeNotAvail"),
    ("priority", "Priority"),
    ("resources", "Resources"),
    ("quota", "Licenses"),
    ("starting", "None"),
    ("unknown", "AReasonOfTomorrow"),
]
ENDS = [
    ("node-lost", "BOOT_FAIL", "None"),
    ("time-limit", "DEADLINE", "None"),
    ("node-lost", "NODE_FAIL", "NodeDown"),
    ("out-of-memory", "OUT_OF_MEMORY", "OutOfMemory"),
    ("preempted", "PREEMPTED", "None"),
    ("time-limit", "TIMEOUT", "TimeLimit"),
    ("cancelled", "CANCELLED", "None"),
    ("none", "RUNNING", "None"),
    ("none", "COMPLETED", "None"),
    ("unknown", "FAILED", "SystemFailure"),
    ("held", "SUSPENDED", "None"),
]

RECORDED = [
    Case("begin-time", HELD, ("squeue-held.json", "112")),
    Case("held", HELD, ("squeue-held.json", "114")),
    Case("held", HELD, ("squeue-held.json", "115")),
    Case("dependency", HELD, ("squeue-held.json", "116")),
    Case("time-limit", FAILED, ("squeue-failed.json", "41")),
    Case("none", FAILED, ("squeue-failed.json", "44")),
    Case("held", "recorded 22.05, squeue-requeued.json", ("squeue-requeued.json", "114")),
]
WRITTEN = [
    *(Case(cause, CODES, ("PENDING", reason)) for cause, reason in WAITS),
    *(Case(cause, STATES, (state, reason)) for cause, state, reason in ENDS),
]


def of_recorded(native: tuple[str, str]) -> SlurmSnapshot:
    name, job = native
    return snapshot(JobView(job, parse.parse_squeue_json(samples.recorded(name))[job]))


def of_record(native: tuple[str, str]) -> SlurmSnapshot:
    state, reason = native
    job = samples.job_21_08(12, "train-0", state, state_reason=reason)
    return snapshot(JobView("12", parse.parse_squeue_json(samples.squeue(job))["12"]))


def test_there_are_enough_cases() -> None:
    assert len(RECORDED) + len(WRITTEN) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: "-".join(case.native))
def test_what_a_cluster_said(case: Case) -> None:
    check(case, of_recorded, RULES)


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: "-".join(case.native))
def test_what_slurm_documents(case: Case) -> None:
    check(case, of_record, RULES)


WORDS = [
    Case(
        "launch-failed",
        "https://slurm.schedmd.com/faq.html",
        "slurmstepd: error: couldn't chdir to `/jobs/x': No such file or directory",
    ),
    Case(
        "launch-failed",
        "https://slurm.schedmd.com/troubleshoot.html",
        "srun: error: Unable to create step for job 12: Job/step already completing",
    ),
    Case(
        "time-limit",
        "https://slurm.schedmd.com/sbatch.html",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***",
    ),
    Case(
        "preempted",
        "https://slurm.schedmd.com/preempt.html",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO PREEMPTION ***",
    ),
    Case(
        "node-lost",
        "https://slurm.schedmd.com/faq.html",
        "srun: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO NODE FAILURE ***",
    ),
]


@pytest.mark.parametrize("case", WORDS, ids=lambda case: case.cause)
def test_messages_of_a_job_that_failed_before_its_replicas(case: Case) -> None:
    def make(words: str) -> SlurmSnapshot:
        job = samples.job_21_08(12, "train-0", "FAILED", state_reason="NonZeroExitCode")
        native = parse.parse_squeue_json(samples.squeue(job))["12"]
        return snapshot(JobView("12", native, words=words))

    check(case, make, RULES)
