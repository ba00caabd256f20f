"""``aws_batch`` keeps the contract of schedulers: on a fake of AWS, and on moto's with Docker."""

import contextlib
import json
import sys

import pytest

from tests.contract.cloudwatch import CloudWatchLines
from tests.contract.trials import TRIALS
from tests.fake_aws.server import FakeAws
from torchx.schedulers.aws_batch_scheduler import AWSBatchScheduler, create_scheduler
from torchx.schedulers.aws_batch_scheduler._records import state_of
from torchx.specs import AppDef, AppState, RetryPolicy
from torchx.specs.api import macros
from torchx.testing._contract.jobs import APP
from torchx.testing.scheduler_suite import SchedulerContract


class RecordingScheduler(AWSBatchScheduler):
    """Knows what it started, which is deleted after the test."""

    def __init__(self, session_name):
        super().__init__(session_name)
        self.started = []

    def schedule(self, dryrun_info):
        self.started.append(super().schedule(dryrun_info))
        return self.started[-1]


class BatchContract(CloudWatchLines, SchedulerContract):
    """What the suite needs to know of this scheduler."""

    trials = TRIALS
    # the job and its nodes are told by one call, or by two where the nodes are not known yet; a
    # list is one of the queues, one of the jobs, and one of their tags
    most_queries = {"describe": 2, "list": 3, "log": 2, "cancel": 3, "delete": 4}  # noqa: RUF012 - of the suite
    native_states = (
        ("SUBMITTED", AppState.PENDING),
        ("PENDING", AppState.PENDING),
        ("RUNNABLE", AppState.PENDING),
        ("STARTING", AppState.PENDING),
        ("RUNNING", AppState.RUNNING),
        ("SUCCEEDED", AppState.SUCCEEDED),
        ("FAILED", AppState.FAILED),
        ("DREAMING", AppState.UNKNOWN),
    )

    def state_of(self, native):
        return state_of(native)

    def can_run(self, native):
        return not native.startswith("definition ")  # nothing refers to it, and it costs nothing

    @pytest.fixture
    def scheduler_name(self):
        return "aws_batch"

    @pytest.fixture
    def opts(self):
        return {"queue": "queue"}

    @pytest.fixture
    def scheduler(self, aws):
        scheduler = RecordingScheduler("test")
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self, aws):
        scheduler = create_scheduler("other")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def backend_missing(self, scheduler, monkeypatch):
        @contextlib.contextmanager
        def missing():
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, "boto3", None)
                patch.setenv("AWS_DEFAULT_REGION", "af-south-1")  # another session
                scheduler._accounts.clear()
                scheduler._arns["1"] = "arn"
                yield
            scheduler._accounts.clear()

        return missing

    # -- what the service does in another way -----------------------------------------------

    @pytest.mark.parametrize("policy", [RetryPolicy.APPLICATION])
    def test_all_is_restarted_when_the_main_node_fails(self, jobs, policy):
        """A failure of another node ends no attempt: the main node decides."""
        fails = f"[ {macros.replica_id} = 1 ] || [ ${self.attempt_variable} != 0 ]"
        script = f"echo start; {fails} || exit 7; sleep 1"
        retry = {"max_retries": 1, "retry_policy": policy}
        a = jobs.role("sh", "-c", script, name="a", num_replicas=2, **retry)
        b = jobs.role("sh", "-c", "echo start; sleep 1", name="b", **retry)
        app_id = jobs.run(AppDef(APP, [a, b]))
        found = jobs.describe(app_id)
        assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
        for role, k in (("a", 0), ("a", 1), ("b", 0)):
            assert jobs.lines(app_id, role, k) == ["start\n", "start\n"]

    def test_what_is_restarted_is_what_the_policy_says(self):
        """See ``test_all_is_restarted_when_the_main_node_fails``."""


@pytest.fixture(scope="module")
def cloud():
    with FakeAws() as running:
        yield running


class TestBatchOnAFake(BatchContract):
    """On a server that speaks AWS's protocols and runs commands as processes of this machine."""

    timeout_s = 60
    many_replicas = 60

    @pytest.fixture
    def image(self):
        return "any"

    @pytest.fixture
    def host_dir(self):
        pytest.skip("containers of the fake are processes, which mount nothing")

    @pytest.fixture
    def aws(self, cloud, monkeypatch):
        cloud.reset()
        for name, value in cloud.environment().items():
            monkeypatch.setenv(name, value)
        yield cloud
        cloud.no_faults()

    @pytest.fixture
    def backend_away(self, aws):
        return lambda: aws.faulty("drop", times=-1)

    @pytest.fixture
    def refuse_submission(self, aws):
        changes = r"^batch:(Register|Submit)"
        return lambda after: aws.faulty("refuse", changes, skip=after)

    @pytest.fixture
    def refuse_end(self, aws):
        return lambda: aws.faulty("denied", "^batch:(Terminate|Deregister)", times=-1)

    @pytest.fixture
    def native_objects(self, aws):
        return lambda: aws.admin("batch/live", {})

    @pytest.fixture
    def submitted(self, aws):
        def text(app_id):
            name = app_id.rpartition(":")[2]
            changes = [r for r in aws.requests() if "Describe" not in r["call"]]
            return "".join(json.dumps(r["params"]) for r in changes if name in str(r["params"]))

        return text

    @pytest.fixture
    def queries(self, aws):
        return lambda: sum(call.startswith("batch:") for call in aws.calls())
