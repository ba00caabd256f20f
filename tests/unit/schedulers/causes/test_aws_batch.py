"""The cause of a wait or a failure on AWS Batch, from its records."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, INVENTED, Case, check
from torchx.schedulers.aws_batch_scheduler._causes import RULES
from torchx.schedulers.aws_batch_scheduler._states import BatchSnapshot, build_snapshot

STUCK = "https://docs.aws.amazon.com/batch/latest/userguide/job_stuck_in_runnable.html"
STATES = (
    "https://github.com/boto/botocore/blob/1.44.5/botocore/data/batch/2016-08-10/service-2.json.gz"
)
AGENT = (
    "https://github.com/aws/amazon-ecs-agent/blob/0b8caed0/agent/dockerclient/dockerapi/errors.go"
)
SECRETS = "https://github.com/umotif-public/terraform-aws-ecs-fargate/issues/50"
AGENT_ISSUE = "https://github.com/aws/amazon-ecs-agent/issues/2312"
OURS = "src/torchx/schedulers/aws_batch_scheduler/_reasons.py"
CODES = "src/torchx/schedulers/aws_batch_scheduler/_records.py"
EXITED = "Essential container in task exited"

CASES = [
    Case("resources", STUCK, ("RUNNABLE", "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot"
         " fulfill the capacity requested for instance type p5.48xlarge")),
    Case("unschedulable", STUCK, ("RUNNABLE", "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE -"
         " CE(s) associated with the job queue cannot meet the CPU requirement of the job.")),
    Case("unschedulable", STUCK, ("RUNNABLE", "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement"
         " (vCPU/memory/GPU) is higher than that can be met by the CE(s) attached to the job queue.")),
    Case("queue-limit", STUCK, ("RUNNABLE", "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS \u2013 Batch service role has a"
         " permission issue.")),
    Case("queue-limit", STUCK, ("RUNNABLE", "MISCONFIGURATION:EC2_INSTANCE_CONFIGURATION_UNSUPPORTED - Your compute"
         " environment associated with this job queue has an unsupported instance type configuration.")),
    Case("queue-limit", STUCK, ("RUNNABLE", "ACTION_REQUIRED - CE(s) associated with the job queue are invalid.")),
    Case("unknown", STUCK, ("RUNNABLE", "UNDETERMINED - Batch job is blocked, root cause is undetermined.")),
    Case("resources", STUCK, ("FAILED", "Canceled by JobStateTimeLimit action due to reason:"
         " CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY")),
    Case("unschedulable", STUCK, ("FAILED", "Canceled by JobStateTimeLimit action due to reason:"
         " MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT")),
    Case("queue-limit", OURS, ("RUNNABLE", "the queue `q` is disabled")),
    Case("queue-limit", OURS, ("RUNNABLE", "the compute environment `e` is invalid: no role")),
    Case("unschedulable", OURS, ("RUNNABLE", "the compute environment `e` has 4 CPUs at most, the"
         " job needs 8")),
    Case("resources", OURS, ("RUNNABLE", "waits for capacity at place 2 of its queue")),
    Case("none", STATES, ("RUNNING", "")),
    Case("none", STATES, ("SUCCEEDED", "", 0)),
    Case("out-of-memory", AGENT, ("FAILED", EXITED, 137, "OutOfMemoryError: Container killed due to memory usage")),
    Case("image-pull", AGENT, ("FAILED", "Task failed to start", None, "CannotPullContainerError: pull access denied for a")),
    Case("image-pull", AGENT, ("FAILED", "Task failed to start", None, "CannotPullImageManifestError: not found")),
    Case("launch-failed", AGENT, ("FAILED", "Task failed to start", None, "CannotStartContainerError: OCI runtime create failed")),
    Case("launch-failed", AGENT, ("FAILED", "Task failed to start", None, "DockerTimeoutError: Could not transition to"
         " started; timed out after waiting 3m0s")),
    Case("unknown", AGENT_ISSUE, ("FAILED", EXITED, None, "CannotInspectContainerError: Could not transition to inspecting; timed"
         " out after waiting 30s")),
    Case("mount", AGENT, ("FAILED", "Task failed to start", None, "CannotCreateVolumeError: no such volume driver")),
    Case("launch-failed", SECRETS, ("FAILED", "ResourceInitializationError: unable to pull secrets or registry auth: execution"
         " resource retrieval failed: unable to retrieve secrets from ssm")),
    Case("node-lost", "https://github.com/saebyn/glowing-telegram/issues/564", ("FAILED",
         "Host EC2 (instance i-0282b396e52b4c95d) terminated.")),
    Case("time-limit", "https://github.com/faiscadev/fakecloud/pull/1989", ("FAILED",
         "Job attempt duration exceeded timeout", 137)),
    Case("app-error", CODES, ("FAILED", EXITED, 3)),
    Case("killed", CODES, ("FAILED", EXITED, 137)),
    Case("cancelled", CODES, ("FAILED", "killed via torchx CLI", 137)),
    Case("unknown", INVENTED, ("RUNNABLE", "A reason of tomorrow")),
    Case("unknown", INVENTED, ("RUNNABLE", "the EFS of host terminated depends on spot interruption")),
    Case("app-error", INVENTED, ("FAILED", "job oom-prefs on instance was terminated for quota reasons", 1)),
    Case("killed", INVENTED, ("FAILED", "the queue `OutOfMemoryError: ` was cleared", 137)),
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
