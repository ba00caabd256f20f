"""The cause of a wait or a failure of a training job, from its record."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers.aws_sagemaker_scheduler._causes import RULES
from torchx.schedulers.aws_sagemaker_scheduler._states import parse_job

STATUS = (
    "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html"
)
MODEL = "botocore's model of SageMaker: SecondaryStatus"
SDK = "https://github.com/aws/sagemaker-python-sdk/issues"
EXAMPLES = "https://github.com/aws/amazon-sagemaker-examples/issues"
CAPACITY = "https://github.com/DIAGNijmegen/rse-grand-challenge/issues/2631"
STUDIO = "https://github.com/aws/amazon-sagemaker-feedback/issues/99"
ROUTES = "https://github.com/aws/amazon-sagemaker-operator-for-k8s/pull/22"
OURS = "src/torchx/schedulers/aws_sagemaker_scheduler/_states.py"
OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"

CASES = [
    Case("starting", f"{SDK}/1968", ("InProgress", "Starting", "Starting the training job")),
    Case("starting", f"{SDK}/1968", ("InProgress", "Starting", "Launching requested ML instances")),
    Case("starting", f"{SDK}/1968", ("InProgress", "Downloading", "Downloading input data")),
    Case("resources", MODEL, ("InProgress", "Pending", "")),
    Case("preempted", MODEL, ("InProgress", "Interrupted", "")),
    Case("retrying", MODEL, ("InProgress", "Restarting", "")),
    Case("none", f"{EXAMPLES}/842", ("InProgress", "Training",
         "Training image download completed. Training in progress.")),
    Case("none", STATUS, ("Completed", "Completed", "Training job completed")),
    Case("cancelled", STATUS, ("Stopped", "Stopped", "")),
    Case("time-limit", STATUS, ("Stopped", "MaxRuntimeExceeded", "")),
    Case("time-limit", MODEL, ("Stopped", "MaxWaitTimeExceeded", "")),
    Case("resources", CAPACITY, ("Failed", "Failed", "", "CapacityError: Unable to provision"
         " requested ML compute capacity. Please retry using a different ML instance type.")),
    Case("resources", STUDIO, ("InProgress", "Starting", "EC2InsufficientCapacityError: Instance"
         " type 'ml.g5.48xlarge' is temporarily unavailable in supported availability zones")),
    Case("image-pull", f"{SDK}/1968", ("Failed", "Failed", "", "ClientError: Cannot pull algorithm"
         " container. Either the image does not exist or its permissions are incorrect.")),
    Case("disk-full", f"{SDK}/128", ("Failed", "Failed", "",
         "ClientError: Data download failed:Insufficient disk space")),
    Case("bad-option", ROUTES, ("Failed", "Failed", "", "ClientError: Artifact upload failed:Please"
         " ensure that the subnet's route table has a route to an S3 VPC endpoint or a NAT device,"
         " and both the security groups and the subnet's network ACL allow outbound traffic to S3")),
    Case("launch-failed", f"{EXAMPLES}/3650", ("Failed", "Failed", "", "ClientError: Artifact"
         " upload failed:API error (400): OCI runtime create failed: container_linux.go:380:"
         ' starting container process caused: exec: "train": executable file not found in $PATH')),
    Case("unknown", f"{SDK}/70", ("Failed", "Failed", "", "InternalServerError: We encountered an"
         " internal error. Please try again.")),
    Case("app-error", f"{SDK}/357", ("Failed", "Failed", "", "AlgorithmError: Exit Code: 1")),
    Case("app-error", f"{SDK}/134", ("Failed", "Failed", "", "AlgorithmError: Exit Code: 139")),
    Case("killed", f"{SDK}/134", ("Failed", "Failed", "", "AlgorithmError: Exit Code: 137")),
    Case("out-of-memory", f"{SDK}/357", ("Failed", "Failed", "", "AlgorithmError: Exit Code: 1"),
         f"Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n{OOM}\n"),
    Case("unknown", OURS, ("Dreaming", "Dreaming", "")),
    Case("unknown", OURS, ("Failed", "Failed", "", "A reason of tomorrow")),
]  # fmt: skip


def make(native: tuple[str, ...]) -> AppSnapshot:
    status, secondary, words, *failure = native
    return parse_job(
        {
            "TrainingJobName": "a",
            "TrainingJobStatus": status,
            "SecondaryStatus": secondary,
            "SecondaryStatusTransitions": [{"Status": secondary, "StatusMessage": words}],
            "FailureReason": failure[0] if failure else None,
            "ResourceConfig": {"InstanceCount": 1},
        }
    )


@pytest.mark.parametrize("case", CASES)
def test_a_case(case: Case) -> None:
    check(case, make, RULES)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= CASES_AT_LEAST
