"""The cause of a wait or a failure on AWS Batch, from its records."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check
from torchx.schedulers.aws_batch_scheduler._causes import RULES
from torchx.schedulers.aws_batch_scheduler._states import BatchSnapshot, build_snapshot

STUCK = "https://docs.aws.amazon.com/batch/latest/userguide/job_stuck_in_runnable.html"
STATES = "https://docs.aws.amazon.com/batch/latest/userguide/job_states.html"
STOPPED = (
    "https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html"
)
TIMEOUTS = "https://docs.aws.amazon.com/batch/latest/userguide/job_timeouts.html"
OURS = "src/torchx/schedulers/aws_batch_scheduler/_reasons.py"

CASES = [
    Case("resources", STUCK, ("RUNNABLE", "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot"
         " fulfill the capacity requested for instance type p5.48xlarge")),
    Case("unschedulable", STUCK, ("RUNNABLE", "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE -"
         " CE(s) associated with the job queue cannot meet the CPU requirement of the job.")),
    Case("unschedulable", STUCK, ("RUNNABLE", "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job"
         " resource requirement (vCPU/memory/GPU) is higher than that can be met")),
    Case("queue-limit", STUCK, ("RUNNABLE", "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS")),
    Case("queue-limit", OURS, ("RUNNABLE", "the queue `q` is disabled")),
    Case("queue-limit", OURS, ("RUNNABLE", "the compute environment `e` is invalid: no role")),
    Case("unschedulable", OURS, ("RUNNABLE", "the compute environment `e` has 4 CPUs at most, the"
         " job needs 8")),
    Case("resources", OURS, ("RUNNABLE", "waits for capacity at place 2 of its queue")),
    Case("none", STATES, ("RUNNING", "")),
    Case("none", STATES, ("SUCCEEDED", "", 0)),
    Case("out-of-memory", STOPPED, ("FAILED", "Essential container in task exited", 137,
         "OutOfMemoryError: Container killed due to memory usage")),
    Case("image-pull", STOPPED, ("FAILED", "Task failed to start", None,
         "CannotPullContainerError: image Manifest does not contain descriptor")),
    Case("launch-failed", STOPPED, ("FAILED", "Task failed to start", None,
         "CannotStartContainerError: OCI runtime create failed: no such file")),
    Case("launch-failed", STOPPED, ("FAILED", "ResourceInitializationError: unable to pull secrets"
         " or registry auth")),
    Case("mount", STOPPED, ("FAILED", "ResourceInitializationError: failed to invoke EFS utils"
         " commands to set up EFS volumes")),
    Case("node-lost", STATES, ("FAILED", "Host EC2 (instance i-0a1b) terminated.")),
    Case("time-limit", TIMEOUTS, ("FAILED", "Job attempt duration exceeded timeout", 137)),
    Case("app-error", STATES, ("FAILED", "Essential container in task exited", 3)),
    Case("cancelled", STATES, ("FAILED", "killed via torchx CLI", 137)),
    Case("resources", STUCK, ("FAILED", "Canceled by JobStateTimeLimit action due to reason:"
         " CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY")),
    Case("unknown", STUCK, ("RUNNABLE", "A reason of tomorrow")),
]  # fmt: skip


def make(native: tuple[object, ...]) -> BatchSnapshot:
    status, words, *more = native
    code, reason = (*more, None, None)[:2]
    container = {"exitCode": code, "reason": reason}
    container = {key: value for key, value in container.items() if value is not None}
    job = {"jobName": "a", "status": status, "statusReason": words, "container": container}
    if str(words).startswith("Canceled by"):
        job["isCancelled"] = True
    return build_snapshot("q:a", job, {})


@pytest.mark.parametrize("case", CASES)
def test_a_case(case: Case) -> None:
    check(case, make, RULES)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= CASES_AT_LEAST
