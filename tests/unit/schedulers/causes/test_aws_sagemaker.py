"""The cause of a wait or a failure of a training job, from its record."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, INVENTED, Case, check
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers.aws_sagemaker_scheduler._causes import RULES
from torchx.schedulers.aws_sagemaker_scheduler._states import parse_job

STATUS = (
    "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html"
)
MODEL = (
    "https://github.com/boto/botocore/blob/1.44.5/botocore/data/sagemaker/2017-07-24/"
    "service-2.json.gz"
)
SDK = "https://github.com/aws/sagemaker-python-sdk/issues"
EXAMPLES = "https://github.com/aws/amazon-sagemaker-examples/issues"
USERS = (
    "https://github.com/comic/grand-challenge.org/blob/06fd8896/app/grandchallenge/components/"
    "backends/amazon_sagemaker_base.py"
)
ROUTES = "https://github.com/aws/amazon-sagemaker-operator-for-k8s/pull/22"
OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
USER_ERROR = (
    'AlgorithmError: ExecuteUserScriptError: ExitCode 1 ErrorMessage "{}" Command "python t.py"'
)

CASES = [
    Case("starting", MODEL, ("InProgress", "Starting", "Starting the training job.")),
    Case("starting", MODEL, ("InProgress", "Starting", "Launching requested ML instances.")),
    Case("starting", MODEL, ("InProgress", "Starting", "Launched instance was unhealthy, replacing it!")),
    Case("resources", MODEL, ("InProgress", "Starting", "Insufficient capacity error from EC2 while launching instances,"
         " retrying!")),
    Case("starting", MODEL, ("InProgress", "Downloading", "")),
    Case("resources", MODEL, ("InProgress", "Pending", "")),
    Case("preempted", MODEL, ("InProgress", "Interrupted", "")),
    Case("retrying", MODEL, ("InProgress", "Restarting", "")),
    Case("none", MODEL, ("InProgress", "Training",
         "Training image download completed. Training in progress.")),
    Case("none", STATUS, ("Completed", "Completed", "")),
    Case("cancelled", STATUS, ("Stopped", "Stopped", "")),
    Case("time-limit", STATUS, ("Stopped", "MaxRuntimeExceeded", "")),
    Case("time-limit", MODEL, ("Stopped", "MaxWaitTimeExceeded", "")),
    Case("resources", USERS, ("Failed", "Failed", "", "CapacityError: Unable to provision"
         " requested ML compute capacity. Please retry using a different ML instance type.")),
    Case("out-of-memory", USERS, ("Failed", "Failed", "", "ClientError: Please use an instance type with more memory, or"
         " reduce the size of job data processed on an instance.")),
    Case("out-of-memory", USERS, ("Failed", "Failed", "", "ClientError: Artifact upload failed:ClientError: Out of Memory."
         " Please use a larger instance")),
    Case("unknown", USERS, ("Failed", "Failed", "", "InternalServerError: We encountered an"
         " internal error. Please try again.")),
    Case("image-pull", f"{SDK}/1968", ("Failed", "Failed", "", "ClientError: Cannot pull algorithm"
         " container. Either the image does not exist or its permissions are incorrect.")),
    Case("image-pull", "https://github.com/aws-samples/amazon-sagemaker-tensorflow-object-detection-api/issues/14", ("Failed",
         "Failed", "", "ClientError: API error (404): manifest for 7.dkr.ecr.us-west-2.amazonaws.com/a:1 not found: manifest"
         " unknown: Requested image not found")),
    Case("access-denied", f"{SDK}/43", ("Failed", "Failed", "", "ClientError: SageMaker was unable to assume the role"
         " 'arn:aws:iam::1:role/AmazonSageMaker-ExecutionRole'")),
    Case("disk-full", f"{SDK}/128", ("Failed", "Failed", "",
         "ClientError: Data download failed:Insufficient disk space")),
    Case("bad-option", ROUTES, ("Failed", "Failed", "", "ClientError: Artifact upload failed:Please"
         " ensure that the subnet's route table has a route to an S3 VPC endpoint or a NAT device,"
         " and both the security groups and the subnet's network ACL allow outbound traffic to S3")),
    Case("bad-option", f"{EXAMPLES}/587", ("Failed", "Failed", "", "ClientError: Please use a GPU instance for training")),
    Case("launch-failed", f"{EXAMPLES}/3650", ("Failed", "Failed", "", "ClientError: Artifact"
         " upload failed:API error (400): OCI runtime create failed: container_linux.go:380:"
         ' starting container process caused: exec: "train": executable file not found in $PATH')),
    Case("app-error", f"{SDK}/134", ("Failed", "Failed", "", "AlgorithmError: Exit Code: 139")),
    Case("app-error", f"{SDK}/1442", ("Failed", "Failed", "", 'AlgorithmError: ExecuteUserScriptError: Command'
         ' "/usr/bin/python script.py"')),
    Case("out-of-memory", f"{SDK}/134", ("Failed", "Failed", "", "AlgorithmError: Exit Code: 1"),
         f"Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n{OOM}\n"),
    Case("out-of-memory", INVENTED, ("Failed", "Failed", "", USER_ERROR.format(OOM))),
    Case("app-error", INVENTED, ("Failed", "Failed", "", USER_ERROR.format("ValueError: no CapacityError, image does not exist,"
         " Unable to provision requested data, insufficient disk space"))),
    Case("app-error", INVENTED, ("Failed", "Failed", "", "AlgorithmError: failed to download container data s3://quota,"
         " ResourceLimitExceeded: no space left on device, exit code: 1")),
    Case("unknown", INVENTED, ("Dreaming", "Dreaming", "")),
    Case("unknown", INVENTED, ("Failed", "Failed", "", "A reason of tomorrow about the queue Pending and Interrupted")),
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
