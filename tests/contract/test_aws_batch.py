"""``aws_batch`` keeps the contract of schedulers: on a fake of AWS, and on moto's with Docker."""

import contextlib
import json
import os
import sys
import urllib.request
from dataclasses import replace

import pytest

from tests.aws_relay import AwsRelay
from tests.contract.cloudwatch import CloudWatchLines
from tests.contract.trials import TRIALS
from tests.docker_engine import PYTHON_IMAGE, image_id
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
    many_replicas = 99
    """AWS tells of 100 jobs in one answer: of these nodes, and of the job that they belong to."""

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

    def test_300_replicas_are_asked_for_by_hundreds(self, jobs, queries):
        asked = self.queries_of_verbs(jobs, queries, "cancel", 300)
        # 301 jobs in four answers; a list looks at no nodes
        assert asked == {"describe": 4, "status": 4, "list": 3, "log": 4, "cancel": 5}


# -- moto's server, with real containers ---------------------------------------------------------


PORT = os.environ.get("TORCHX_MOTO_PORT", "5556")  # tests do not see such variables
NO_NODES = "moto tells nothing of nodes, nor their logs"
LATE = "moto has the lines of a container when it has ended"
NO_REASON = "moto tells no exit code and no reason"
GAPS = {
    "test_each_replica_and_role_has_its_own": NO_NODES,
    "test_macros_are_replaced_in_args_and_env": NO_NODES,
    "test_the_env_of_one_role_stays_there": NO_NODES,
    "test_one_bad_replica_fails_the_app": NO_NODES,
    "test_blocks_of_all_replicas_come_in_the_order_of_time_where_lines_have_one": NO_NODES,
    "test_blocks_hold_whole_lines": NO_NODES,
    "test_blocks_can_be_chosen": NO_NODES,
    "test_the_last_lines_of_each_replica_can_be_chosen": NO_NODES,
    "test_awkward_names_stay_apart_or_are_refused": NO_NODES,
    "test_a_replica_that_fails_for_good_ends_the_others": NO_NODES,
    "test_a_launch_that_nobody_watches_ends_the_others_or_is_known_to_need_someone": NO_NODES,
    "test_the_others_go_on_if_the_option_says_so": NO_NODES,
    "test_the_number_of_queries_does_not_grow_with_replicas": NO_NODES,
    "test_all_is_restarted_when_the_main_node_fails": NO_NODES,
    "test_without_following_there_is_what_is_there": LATE,
    "test_following_gives_lines_while_the_job_runs_and_ends_with_it": LATE,
    "test_following_outlives_an_outage": LATE,
    "test_cancel_does_not_wait_for_the_end": LATE,
    "test_a_failure_in_a_cancelled_app_is_no_failure": LATE,
    "test_two_followers_see_the_same": LATE,
    "test_logs_that_are_waited_for_come_after_an_outage": LATE,
    "test_commands_that_watch_outlive_an_outage_and_say_so_once": LATE,
    "test_nothing_of_much_output_is_lost_or_broken": "moto strips spaces at the ends of lines",
    "test_lines_are_whole_and_in_order": "moto keeps empty lines, which the log driver does not",
    "test_a_long_line_is_one_line": "moto reads Docker's log, in pieces of 16 KB",
    "test_retries_end_at_their_maximum": "moto makes one attempt",
    "test_an_interrupted_launch_leaves_nothing_or_an_app_that_can_be_reached": (
        "tested on the fake, which tells what is left"
    ),
    "test_the_backend_gets_what_the_dryrun_shows": "tested on the fake, which keeps what it got",
    "test_a_submission_that_is_refused_leaves_nothing": (
        "moto lists definitions that are not active without saying so"
    ),
}


@pytest.fixture(scope="session")
def moto():
    """Address of the server of scripts/engines/aws, and the image that its containers have."""
    url = f"http://127.0.0.1:{PORT}"
    try:
        urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
    except OSError as err:
        pytest.skip(f"no moto on {url} ({err}); start it: scripts/engines/aws up")
    from torchx._docker import connect

    client = connect()
    try:
        image_id(client, PYTHON_IMAGE)
    finally:
        client.close()
    return url


@pytest.mark.aws
@pytest.mark.timeout(300)
class TestBatchOnMoto(BatchContract):
    """On the server of ``scripts/engines/aws``, whose jobs are containers of a Docker daemon."""

    timeout_s = 60

    @pytest.fixture(autouse=True)
    def gaps(self, request):
        reason = GAPS.get(request.function.__name__)
        if reason is not None:
            pytest.skip(reason)

    @pytest.fixture
    def image(self):
        return "torchx-test/python:3.11"

    @pytest.fixture
    def aws(self, moto, monkeypatch):
        with AwsRelay(moto) as relay:
            settings = {
                "AWS_ENDPOINT_URL": relay.url,
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_DEFAULT_REGION": "eu-west-1",
            }
            for name, value in settings.items():
                monkeypatch.setenv(name, value)
            yield relay

    @pytest.fixture
    def scheduler(self, aws):
        scheduler = RecordingScheduler("test")
        scheduler.features = replace(
            scheduler.features,
            exit_codes=False,
            replica_statuses=False,
            attempts=False,
            retries=frozenset(),
        )
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()

    @pytest.fixture
    def backend_away(self, aws):
        return lambda: aws.faulty("drop")

    @pytest.fixture
    def refuse_end(self, aws):
        return lambda: aws.faulty("refuse", "^batch:(terminate|deregister)")

    @pytest.fixture
    def queries(self, aws):
        return lambda: sum(call.startswith("batch:") for call in aws.calls)
