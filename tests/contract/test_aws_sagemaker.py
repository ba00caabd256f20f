"""``aws_sagemaker`` keeps the contract of schedulers, on a stand-in for AWS that runs commands."""

import contextlib
import json
import sys

import pytest

from tests.contract.cloudwatch import CloudWatchLines
from tests.contract.trials import TRIALS
from tests.fake_aws.server import FakeAws
from torchx.errors import UnsupportedRequest
from torchx.schedulers.aws_sagemaker_scheduler import create_scheduler
from torchx.schedulers.aws_sagemaker_scheduler._states import job_state
from torchx.specs import AppState, Resource
from torchx.testing.scheduler_suite import SchedulerContract

STREAMS = ("logs:",)
"""Calls that read logs."""


@pytest.fixture(scope="module")
def running_aws():
    with FakeAws() as aws:
        yield aws


class SageMakerContract(CloudWatchLines, SchedulerContract):
    """What the suite needs to know of this scheduler."""

    requires_resource = False
    trials = TRIALS
    native_states = (
        (("InProgress", "Starting"), AppState.PENDING),
        (("InProgress", "Training"), AppState.RUNNING),
        (("Completed", "Completed"), AppState.SUCCEEDED),
        (("Failed", "Failed"), AppState.FAILED),
        (("Stopping", "Stopping"), AppState.RUNNING),
        (("Stopped", "Stopped"), AppState.CANCELLED),
        (("Stopped", "MaxRuntimeExceeded"), AppState.FAILED),
        (("Dreaming", ""), AppState.UNKNOWN),
    )

    def state_of(self, native):
        return job_state(*native)

    @pytest.fixture
    def scheduler_name(self):
        return "aws_sagemaker"

    @pytest.fixture
    def opts(self):
        return {
            "role": "arn:aws:iam::123456789012:role/service-role/Trainer",
            "launch": "container",
            "output_path": "s3://results/out",
        }

    @pytest.fixture
    def image(self):
        return "123456789012.dkr.ecr.eu-west-1.amazonaws.com/any:1"

    # -- where SageMaker differs ------------------------------------------------------------

    def test_success_is_not_retried(self, jobs):
        # a training job is not started again when its program fails: retries are refused
        with pytest.raises(UnsupportedRequest, match="max_retry_attempts"):
            jobs.start(jobs.sh("true", max_retries=2))

    def test_resources_are_in_the_request(self, scheduler, opts, jobs):
        # they choose the type of the instances, of which there are few
        def text(cpu, mem):
            app = jobs.sh("true", resource=Resource(cpu, 0, mem))
            return str(scheduler.submit_dryrun(app, opts))

        assert "InstanceType: ml.t3.medium" in text(2, 640)
        assert "InstanceType: ml.m5.large" in text(2, 6000)
        assert "InstanceType: ml.m5.xlarge" in text(4, 6000)


@pytest.mark.thorough
class TestSageMakerOnAFake(SageMakerContract):
    """On a server that speaks AWS's protocol and runs commands as processes of this machine."""

    timeout_s = 60
    # a look at the job, and its end; the log has its streams besides
    most_queries = {"describe": 1, "list": 1, "log": 1, "cancel": 2, "delete": 2}  # noqa: RUF012 - of the suite

    @pytest.fixture
    def aws(self, running_aws, monkeypatch):
        running_aws.reset()
        for name, value in running_aws.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")  # outages of the suite are long enough
        yield running_aws
        running_aws.no_faults()

    @pytest.fixture
    def scheduler(self, aws):
        scheduler = create_scheduler("test")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self, aws):
        scheduler = create_scheduler("other")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def backend_away(self, aws):
        return lambda: aws.faulty("drop", times=-1)

    @pytest.fixture
    def backend_missing(self, monkeypatch):
        @contextlib.contextmanager
        def missing():
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, "boto3", None)
                patch.setenv("AWS_PROFILE_OF_TEST", "other")  # not the session that is there
                yield

        return missing

    @pytest.fixture
    def refuse_submission(self, aws):
        def refuse(after):
            return aws.faulty("refuse", "CreateTrainingJob", skip=after, code="AccessDenied")

        return refuse

    @pytest.fixture
    def refuse_end(self, aws):
        return lambda: aws.faulty("denied", "StopTrainingJob", times=-1)

    @pytest.fixture
    def native_objects(self, aws):
        return lambda: aws.admin("sagemaker/live", {})

    @pytest.fixture
    def submitted(self, aws):
        return lambda app_id: json.dumps(aws.admin("sagemaker/request", {"name": app_id}))

    @pytest.fixture
    def queries(self, aws):
        return lambda: sum(not call.startswith(STREAMS) for call in aws.calls())
