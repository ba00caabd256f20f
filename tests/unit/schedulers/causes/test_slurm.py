"""The cause of a wait or a failure on Slurm, from its records."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, INVENTED, Case, check
from tests.unit.schedulers.slurm import samples
from torchx.schedulers.slurm_scheduler import _parse as parse
from torchx.schedulers.slurm_scheduler._causes import RULES
from torchx.schedulers.slurm_scheduler._states import JobView, SlurmSnapshot, snapshot

CODES = "https://slurm.schedmd.com/job_reason_codes.html"
STATES = "https://slurm.schedmd.com/job_state_codes.html"
SOURCE = "https://github.com/SchedMD/slurm/blob/284c3b95/src/"
STEPD = SOURCE + "slurmd/slurmstepd/"
HELD = "recorded 22.05, squeue-held.json"
FAILED = "recorded 22.05, squeue-failed.json"

WAITS = [
    ("quota", "AssocGrpCpuLimit"),
    ("quota", "AssocGrpCPURunMinutesLimit"),
    ("quota", "AssocMaxJobsLimit"),
    ("quota", "AssocMaxWallDurationPerJobLimit"),
    ("quota", "AssociationResourceLimit"),
    ("quota", "QOSMaxJobsPerUserLimit"),
    ("quota", "QOSMaxGRESPerUser"),
    ("quota", "QOSMaxNodePerJobLimit"),
    ("quota", "QOSGrpNodeLimit"),
    ("quota", "QOSGrpGRES"),
    ("quota", "QOSResourceLimit"),
    ("quota", "QOSUsageThreshold"),
    ("quota", "MaxCpuPerAccount"),
    ("quota", "MaxMemPerLimit"),
    ("bad-option", "InvalidQOS"),
    ("bad-option", "InvalidAccount"),
    ("bad-option", "AccountNotAllowed"),
    ("bad-option", "QOSMinGRES"),
    ("bad-option", "BadConstraints"),
    ("bad-option", "ReservationDeleted"),
    ("begin-time", "BeginTime"),
    ("begin-time", "Reservation"),
    ("dependency", "Dependency"),
    ("dependency", "DependencyNeverSatisfied"),
    ("held", "JobHeldAdmin"),
    ("held", "JobHeldUser"),
    ("held", "JobHoldMaxRequeue"),
    ("queue-limit", "PartitionConfig"),
    ("queue-limit", "PartitionDown"),
    ("queue-limit", "PartitionInactive"),
    ("queue-limit", "PartitionNodeLimit"),
    ("queue-limit", "PartitionTimeLimit"),
    ("unschedulable", "ReqNodeNotAvail"),
    ("unschedulable", "NodeDown"),
    ("unschedulable", "Constraints"),
    ("priority", "Priority"),
    ("resources", "Resources"),
    ("resources", "Licenses"),
    ("time-limit", "DeadLine"),
    ("starting", "None"),
    ("starting", "Prolog"),
    ("starting", "Cleaning"),
    ("unknown", "JobArrayTaskLimit"),
    ("unknown", "SchedDefer"),
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
    ("unknown", "FAILED", "NonZeroExitCode"),
    ("launch-failed", "FAILED", "JobLaunchFailure"),
    ("held", "SUSPENDED", "None"),
]
LIKE_OTHERS = [
    ("unknown", "AReasonOfTomorrow"),
    ("unknown", "resources"),
    ("unknown", "PriorityOfTomorrow"),
    ("unknown", "NoDependency"),
    ("unknown", "out-of-memory-team"),
    ("unknown", "TimeLimitation"),
]
"""Codes are whole words of their own case."""

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
    *(Case(cause, INVENTED, ("PENDING", reason)) for cause, reason in LIKE_OTHERS),
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


ON = "*** JOB 12 ON n1 CANCELLED AT 2026-01-02T03:04:05 "
WORDS = [
    Case("launch-failed", STEPD + "mgr.c", "slurmstepd: error: couldn't chdir to `/jobs/x': No such file or directory"),
    Case("launch-failed", STEPD + "task.c", "slurmstepd: error: execve(): train: No such file or directory"),
    Case("launch-failed", SOURCE + "api/step_launch.c", "srun: error: task 0 launch failed: Slurmd could not execve job"),
    Case("launch-failed", SOURCE + "srun/launch.c", "srun: error: Unable to create step for job 12: Job/step already completing"),
    Case("time-limit", STEPD + "req.c", f"slurmstepd: error: {ON}DUE TO TIME LIMIT ***"),
    Case("preempted", STEPD + "req.c", f"slurmstepd: error: {ON}DUE TO PREEMPTION ***"),
    Case("node-lost", STEPD + "req.c", f"srun: error: {ON}DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"),
    Case("out-of-memory", SOURCE + "plugins/task/cgroup/task_cgroup_memory.c", "slurmstepd: error: Detected 1 oom_kill event"
         " in StepId=12.0. Some of the step tasks have been OOM Killed."),
    Case("unknown", STEPD + "req.c", f"slurmstepd: error: {ON}DUE TO TASK FAILURE ***"),
    Case("unknown", STEPD + "req.c", f"slurmstepd: error: {ON}DUE to SIGNAL Terminated ***"),
    Case("unknown", INVENTED, "a message of tomorrow"),
    Case("unknown", INVENTED, "step out-of-memory-1 of oom_killer has Resources and Priority in `TIMEOUT`"),
]  # fmt: skip


@pytest.mark.parametrize("case", WORDS, ids=lambda case: case.native[-30:])
def test_messages_of_a_job_that_failed_before_its_replicas(case: Case) -> None:
    def make(words: str) -> SlurmSnapshot:
        job = samples.job_21_08(12, "train-0", "FAILED", state_reason="NonZeroExitCode")
        native = parse.parse_squeue_json(samples.squeue(job))["12"]
        return snapshot(JobView("12", native, words=words))

    check(case, make, RULES)
