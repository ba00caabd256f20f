"""What SageMaker says of jobs, in our terms."""

from datetime import datetime, timezone

import pytest

from tests.fake_aws.model import service_model
from torchx.schedulers._core.snapshot import to_response
from torchx.schedulers.aws_sagemaker_scheduler import JOB_STATE, create_scheduler
from torchx.schedulers.aws_sagemaker_scheduler._logs import name_streams
from torchx.schedulers.aws_sagemaker_scheduler._states import job_state, parse_job, parse_row
from torchx.specs import AppState

MODEL = service_model("sagemaker")
BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
RECORD = {
    "TrainingJobName": "app-x1",
    "TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/app-x1",
    "TrainingJobStatus": "InProgress",
    "SecondaryStatus": "Training",
    "AlgorithmSpecification": {
        "TrainingImage": "i:1",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["python"],
        "ContainerArguments": ["-m", "train"],
    },
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "Environment": {"TORCHX_ROLE_NAME": "trainer", "A": "b"},
    "SecondaryStatusTransitions": [
        {"Status": "Starting", "StartTime": BEGAN, "StatusMessage": "Preparing the instances"},
    ],
    "CreationTime": BEGAN,
    "TrainingStartTime": BEGAN,
}


def record(status, secondary="", **more):
    return {**RECORD, "TrainingJobStatus": status, "SecondaryStatus": secondary, **more}


def failed(reason, count=1, **more):
    resources = {**RECORD["ResourceConfig"], "InstanceCount": count}
    return record("Failed", "Failed", FailureReason=reason, ResourceConfig=resources, **more)


@pytest.mark.parametrize(
    ("status", "secondary", "expected"),
    [
        ("InProgress", "", AppState.RUNNING),
        ("InProgress", "Training", AppState.RUNNING),
        ("InProgress", "Uploading", AppState.RUNNING),
        ("InProgress", "Starting", AppState.PENDING),
        ("InProgress", "Pending", AppState.PENDING),
        ("InProgress", "Downloading", AppState.PENDING),
        ("InProgress", "Interrupted", AppState.PENDING),
        ("InProgress", "Dreaming", AppState.RUNNING),
        ("Completed", "Completed", AppState.SUCCEEDED),
        ("Failed", "Failed", AppState.FAILED),
        ("Stopping", "Stopping", AppState.RUNNING),
        ("Stopped", "Stopped", AppState.CANCELLED),
        ("Stopped", "MaxRuntimeExceeded", AppState.FAILED),
        ("Stopped", "MaxWaitTimeExceeded", AppState.FAILED),
        ("Dreaming", "", AppState.UNKNOWN),
        ("", "", AppState.UNKNOWN),
    ],
)
def test_states(status, secondary, expected):
    assert job_state(status, secondary) is expected


def test_all_states_of_today_are_known():
    assert set(JOB_STATE) == set(MODEL.shape_for("TrainingJobStatus").enum)


def test_a_job_that_runs():
    snapshot = parse_job(RECORD)
    assert snapshot.state is AppState.RUNNING
    assert [(r.role, r.replica, r.host) for r in snapshot.replicas] == [
        ("trainer", 0, "algo-1"),
        ("trainer", 1, "algo-2"),
    ]
    (role,) = snapshot.roles
    assert (role.image, role.entrypoint, role.args) == ("i:1", "python", ["-m", "train"])
    assert role.num_replicas == 2
    found = to_response(snapshot)
    assert found.msg == "<NONE>"
    assert found.num_restarts == 0
    assert found.ui_url == (
        "https://us-east-1.console.aws.amazon.com/sagemaker/home?region=us-east-1#jobs/app-x1"
    )
    assert snapshot.replicas[0].started_ns == 1767323045678000000


def test_why_a_job_waits_is_told():
    found = to_response(parse_job(record("InProgress", "Starting")))
    assert found.state is AppState.PENDING
    assert found.msg == "Starting: Preparing the instances"


@pytest.mark.parametrize(
    ("reason", "code", "msg"),
    [
        (
            "AlgorithmError: , exit code: 3",
            3,
            "replica trainer/0 exited with code 3; AlgorithmError: , exit code: 3",
        ),
        (
            'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "ValueError: x"',
            1,
            "replica trainer/0 exited with code 1; AlgorithmError: ExecuteUserScriptError:"
            ' ExitCode 1 ErrorMessage "ValueError: x"',
        ),
        (
            "AlgorithmError: , exit code: 137",
            -9,
            "replica trainer/0 killed by SIGKILL; AlgorithmError: , exit code: 137",
        ),
        (
            "CapacityError: Unable to provision requested ML compute capacity.",
            None,
            "replica trainer/0 CapacityError: Unable to provision requested ML compute capacity.",
        ),
    ],
)
def test_how_one_instance_failed(reason, code, msg):
    snapshot = parse_job(failed(reason))
    assert snapshot.replicas[0].exit_code == code
    assert to_response(snapshot).msg == msg


def test_which_of_several_instances_failed_is_not_told():
    snapshot = parse_job(failed("AlgorithmError: , exit code: 3", count=2))
    assert [r.exit_code for r in snapshot.replicas] == [None, None]
    assert to_response(snapshot).msg == (
        "replica trainer/0 failed, or another one did; AlgorithmError: , exit code: 3"
    )


def test_a_job_that_took_too_long():
    found = to_response(parse_job(record("Stopped", "MaxRuntimeExceeded")))
    assert found.state is AppState.FAILED
    assert "longer than max_run allows" in found.msg


def test_a_job_that_a_user_stopped():
    found = to_response(parse_job(record("Stopped", "Stopped")))
    assert (found.state, found.msg) == (AppState.CANCELLED, "cancelled")
    stopping = to_response(parse_job(record("Stopping", "Stopping")))
    assert (stopping.state, stopping.msg) == (AppState.RUNNING, "being cancelled")


def test_interruptions_are_counted():
    steps = [{"Status": s} for s in ("Starting", "Training", "Interrupted", "Starting")]
    assert parse_job({**RECORD, "SecondaryStatusTransitions": steps}).restarts == 1


@pytest.mark.parametrize("missing", [*RECORD])
def test_a_field_that_is_missing_does_no_harm(missing):
    rest = {key: value for key, value in RECORD.items() if key != missing}
    assert to_response(parse_job(rest)).roles


def test_an_empty_record_is_unknown():
    assert parse_job({}).state is AppState.UNKNOWN
    assert parse_row({}).state is AppState.UNKNOWN


def test_rows_have_the_name_of_the_app():
    tags = [{"Key": "torchx.pytorch.org/app-name", "Value": "exp/app"}]
    row = parse_row({**RECORD, "Tags": tags})
    assert (row.app_id, row.name, row.state) == ("app-x1", "exp/app", AppState.RUNNING)


@pytest.mark.parametrize(
    ("arn", "url"),
    [
        (
            "arn:aws-cn:sagemaker:cn-north-1:1:training-job/a",
            "https://cn-north-1.console.amazonaws.cn/sagemaker/home?region=cn-north-1#jobs/a",
        ),
        ("arn:aws:sagemaker:us-east-1:1:endpoint/a", None),
        ("", None),
    ],
)
def test_pages_of_the_console(arn, url):
    assert create_scheduler("s")._job_ui_url(arn) == url


def test_streams_are_those_of_the_instances():
    found = [
        {"logStreamName": "app-x1/algo-2-1700000009", "creationTime": 9},
        {"logStreamName": "app-x1/algo-1-1700000001", "creationTime": 1},
        {"logStreamName": "app-x1/algo-1-1700000005", "creationTime": 5},
        {"logStreamName": "app-x1/something", "creationTime": 5},
    ]
    streams = name_streams(parse_job(RECORD), found)
    assert [(s.key.replica, s.key.attempt, s.name[-10:]) for s in streams] == [
        (0, 0, "1700000001"),
        (0, 1, "1700000005"),
        (1, 0, "1700000009"),
    ]
