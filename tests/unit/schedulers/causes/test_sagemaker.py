"""The cause of a wait or a failure on SageMaker, from the records of its API."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers.aws_sagemaker_scheduler._causes import RULES
from torchx.schedulers.aws_sagemaker_scheduler._states import parse_job

API = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html"
STEPS = (
    "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html"
)
LIMITS = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html"
TOOLKIT = "https://github.com/aws/sagemaker-training-toolkit"
TROUBLE = "https://docs.aws.amazon.com/sagemaker/latest/dg/training-troubleshooting.html"
SPOT = "https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html"

CASES = [
    Case("starting", STEPS, ("InProgress", "Starting", "Starting the training job.")),
    Case("starting", STEPS, ("InProgress", "Starting", "Launching requested ML instances.")),
    Case("starting", STEPS, ("InProgress", "Starting", "Preparing the instances for training")),
    Case("resources", STEPS, ("InProgress", "Starting",
         "Insufficient capacity error from EC2 while launching instances, retrying!")),
    Case("node-lost", STEPS, ("InProgress", "Starting", "Launched instance was unhealthy, replacing it!")),
    Case("starting", STEPS, ("InProgress", "Downloading", "Downloading the training image")),
    Case("preempted", SPOT, ("InProgress", "Interrupted", "")),
    Case("none", API, ("InProgress", "Training", "Training in progress.")),
    Case("none", API, ("Completed", "Completed", "")),
    Case("cancelled", API, ("Stopped", "Stopped", "")),
    Case("time-limit", API, ("Stopped", "MaxRuntimeExceeded", "")),
    Case("resources", SPOT, ("Stopped", "MaxWaitTimeExceeded", "")),
    Case("unschedulable", TROUBLE, ("Failed", "Failed", "CapacityError: Unable to provision requested ML"
         " compute capacity. Please retry using a different ML instance type.")),
    Case("app-error", TOOLKIT, ("Failed", "Failed", 'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\n'
         'ErrorMessage "ValueError: loss is NaN"\nCommand "/usr/bin/python3 train.py", exit code: 1')),
    Case("app-error", API, ("Failed", "Failed", "AlgorithmError: , exit code: 3")),
    Case("out-of-memory", TROUBLE, ("Failed", "Failed", "AlgorithmError: OutOfMemoryError, exit code: 137")),
    Case("mount", API, ("Failed", "Failed", "ClientError: Data download failed:NoSuchKey (404): The"
         " requested key s3://bucket/data does not exist")),
    Case("image-pull", TROUBLE, ("Failed", "Failed", "ClientError: Cannot find training image"
         " 123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1")),
    Case("bad-option", TROUBLE, ("Failed", "Failed", "ClientError: Please ensure that the role"
         " arn:aws:iam::123456789012:role/x exists and that its trust relationship policy allows it")),
    Case("quota", LIMITS, ("Failed", "Failed", "ResourceLimitExceeded: The account-level service limit"
         " 'ml.p4d.24xlarge for training job usage' is 0 Instances")),
    Case("node-lost", API, ("Failed", "Failed", "InternalServerError: We encountered an internal error. Please try again.")),
    Case("unknown", API, ("Failed", "Failed", "SomethingOfTomorrow: words")),
]  # fmt: skip


def make(native: tuple[str, str, str]) -> AppSnapshot:
    status, secondary, words = native
    record = {
        "TrainingJobName": "train-x",
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary,
        "ResourceConfig": {"InstanceCount": 1},
    }
    if status == "Failed":
        record["FailureReason"] = words
    else:
        record["SecondaryStatusTransitions"] = [{"Status": secondary, "StatusMessage": words}]
    return parse_job(record)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.native[1]}-{case.cause}")
def test_what_sagemaker_documents(case: Case) -> None:
    check(case, make, RULES)
