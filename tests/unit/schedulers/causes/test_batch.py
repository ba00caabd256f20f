"""The cause of a wait or a failure on AWS Batch, from the records of its API."""

import pytest

from tests.unit.schedulers.aws_batch.test_states import ended, look, single
from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers.aws_batch_scheduler._causes import RULES

STUCK = "https://docs.aws.amazon.com/batch/latest/userguide/job_stuck_in_runnable.html"
BLOCKED = "https://docs.aws.amazon.com/batch/latest/userguide/batch-job-queue-blocked-events.html"
TASKS = "https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html"
RETRY = "https://docs.aws.amazon.com/batch/latest/userguide/job_retries.html"
TIMEOUTS = "https://docs.aws.amazon.com/batch/latest/userguide/job_timeouts.html"
OURS = "recorded, what this scheduler adds"


def waits(words: str) -> dict[str, object]:
    return single(status="RUNNABLE", statusReason=words)


def failed(
    code: int | None, reason: str | None = None, words: str = "Task failed"
) -> dict[str, object]:
    return single(**ended(code, reason=reason, status_reason=words))


CASES = [
    Case("resources", BLOCKED, waits("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill"
         " the capacity requested for instance type [p4d.24xlarge]")),
    Case("unschedulable", BLOCKED, waits("MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s)"
         " associated with the job queue cannot meet the CPU requirement of the job.")),
    Case("unschedulable", BLOCKED, waits("MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource"
         " requirement (vCPU/memory/GPU) is higher than that can be met by the CE(s)")),
    Case("queue-limit", BLOCKED, waits("MISCONFIGURATION:EC2_INSTANCE_CONFIGURATION_UNSUPPORTED - Your"
         " compute environment associated with this job queue has an unsupported instance type")),
    Case("bad-option", BLOCKED, waits("MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS - Batch service role"
         " has a permission issue.")),
    Case("unknown", BLOCKED, waits("UNDETERMINED - Batch job is blocked, root cause is undetermined.")),
    Case("priority", OURS, waits("waits for capacity at place 3 of its queue")),
    Case("queue-limit", OURS, waits("the queue `main` is disabled")),
    Case("queue-limit", OURS, waits("the compute environment `gpus` is invalid: CLIENT_ERROR")),
    Case("unschedulable", OURS, waits("the compute environment `gpus` has 64 CPUs at most, the job needs 96")),
    Case("starting", STUCK, waits("")),
    Case("out-of-memory", RETRY, failed(137, "OutOfMemoryError: Container killed due to memory usage",
         "Essential container in task exited")),
    Case("image-pull", TASKS, failed(None, "CannotPullContainerError: Error response from daemon: manifest"
         " for nope:1 not found: manifest unknown")),
    Case("node-lost", RETRY, failed(None, None, "Host EC2 (instance i-0abc) terminated.")),
    Case("time-limit", TIMEOUTS, failed(137, None, "Job attempt duration exceeded timeout")),
    Case("launch-failed", TASKS, failed(None, 'CannotStartContainerError: Error response from daemon: OCI'
         ' runtime create failed: exec: "train": executable file not found in $PATH')),
    Case("bad-option", TASKS, failed(None, None, "ResourceInitializationError: unable to pull secrets or"
         " registry auth: execution resource retrieval failed")),
    Case("mount", TASKS, failed(None, None, "ResourceInitializationError: failed to invoke EFS utils"
         " commands to set up EFS volumes")),
    Case("dependency", STUCK, failed(None, None, "Dependent Job failed")),
    Case("app-error", RETRY, failed(3, None, "Essential container in task exited")),
    Case("killed", RETRY, failed(137, None, "Essential container in task exited")),
    Case("none", RETRY, single(**ended(0))),
    Case("unknown", TASKS, failed(None, "AReasonOfTomorrow: words")),
]  # fmt: skip


def make(native: dict[str, object]) -> AppSnapshot:
    found: AppSnapshot = look(native)
    return found


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.cause)
def test_what_batch_documents(case: Case) -> None:
    check(case, make, RULES)
