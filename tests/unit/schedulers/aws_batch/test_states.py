"""What is read from the records of jobs: states, exit codes, reasons, roles."""

import pytest

from torchx.schedulers.api import LogKey
from torchx.schedulers.aws_batch_scheduler import JOB_STATE, _job_ui_url
from torchx.schedulers.aws_batch_scheduler._logs import place_of, plan_of
from torchx.schedulers.aws_batch_scheduler._reasons import place_in_queue, why_waiting
from torchx.schedulers.aws_batch_scheduler._records import CANCEL_REASON, END_REASON, state_of
from torchx.schedulers.aws_batch_scheduler._states import build_row, build_snapshot
from torchx.specs import AppState

ARN = "arn:aws:batch:eu-west-1:123456789012:job/1f2a"
EXITED = "Essential container in task exited"


def ended(code=None, at=2000, reason=None, status_reason=EXITED, stream="s", status="FAILED"):
    container = {"logStreamName": stream, "exitCode": code, "reason": reason}
    container = {key: value for key, value in container.items() if value is not None}
    attempt = {"container": container, "startedAt": 1000, "stoppedAt": at}
    return {
        "status": "SUCCEEDED" if code == 0 else status,
        "statusReason": status_reason,
        "startedAt": 1000,
        "stoppedAt": at,
        "attempts": [{**attempt, "statusReason": status_reason}],
        "container": container,
    }


def single(**fields):
    job = {"jobArn": ARN, "jobId": "1f2a", "jobName": "app-x1", "status": "RUNNING", **fields}
    container = {
        "image": "i",
        "command": ["run", "-x"],
        "environment": [{"name": "TORCHX_ROLE_NAME", "value": "w"}],
        "resourceRequirements": [
            {"type": "VCPU", "value": "2"},
            {"type": "MEMORY", "value": "512"},
        ],
    }
    return {**job, "container": {**container, **fields.get("container", {})}}


def look(job, **nodes):
    records = {int(key[1:]): record for key, record in nodes.items()}
    return build_snapshot("q:app-x1", job, records)


def multinode(status="RUNNING", roles=(("w", "0:1"), ("b", "2")), **fields):
    groups = [
        {
            "targetNodes": nodes,
            "container": {"environment": [{"name": "TORCHX_ROLE_NAME", "value": name}]},
        }
        for name, nodes in roles
    ]
    return {
        "jobArn": ARN,
        "jobName": "app-x1",
        "status": status,
        "nodeProperties": {"numNodes": 3, "mainNode": 0, "nodeRangeProperties": groups},
        **fields,
    }


def states(snapshot):
    return [replica.state.name for replica in snapshot.replicas]


RUNNING = {"status": "RUNNING", "container": {"logStreamName": "s"}}


@pytest.mark.parametrize(("native", "state"), JOB_STATE.items())
def test_every_status(native, state):
    assert look(single(status=native, container={"exitCode": 1})).state is state


@pytest.mark.parametrize("status", ["DREAMING", "", None])
def test_a_status_that_there_was_not_yet(status):
    assert state_of(status) is AppState.UNKNOWN
    assert look(single(status=status)).state is AppState.UNKNOWN


def test_the_bare_least_of_a_record():
    found = look({"jobArn": ARN, "jobName": "app-x1", "status": "RUNNING"})
    assert (found.state, found.name) == (AppState.RUNNING, "app-x1")
    assert found.roles[0].name == "node"
    assert found.roles[0].entrypoint == "<MISSING>"


def test_the_role_is_read_back():
    (role,) = look(single()).roles
    assert (role.name, role.image, role.entrypoint, role.args) == ("w", "i", "run", ["-x"])
    assert (role.resource.cpu, role.resource.memMB, role.num_replicas) == (2, 512, 1)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (ended(3), "exited with code 3"),
        (ended(137), "killed by SIGKILL"),
        (
            ended(137, reason="OutOfMemoryError: Container killed due to memory usage"),
            "killed by SIGKILL (OutOfMemoryError: Container killed due to memory usage)",
        ),
        (
            ended(None, status_reason="Host EC2 (instance i-1) terminated."),
            "Host EC2 (instance i-1) terminated.",
        ),
        (
            ended(137, status_reason="Job attempt duration exceeded timeout"),
            "killed by SIGKILL (Job attempt duration exceeded timeout)",
        ),
        (
            ended(
                reason="CannotPullContainerError: no such image",
                status_reason="Task failed to start",
            ),
            "CannotPullContainerError: no such image; Task failed to start",
        ),
        (ended(None), "failed"),
    ],
)
def test_how_a_container_ended(record, words):
    found = look(single(**record))
    assert found.state is AppState.FAILED
    assert found.fatal.ending == words


def test_a_job_that_a_user_cancelled():
    found = look(single(**ended(143, status_reason=CANCEL_REASON)))
    assert found.state is AppState.CANCELLED
    found = look(single(**ended(1, status_reason="from the console"), isTerminated=True))
    assert found.state is AppState.CANCELLED
    live = look(single(isTerminated=True))
    assert (live.state, live.cancelled) == (AppState.RUNNING, True)


def test_success_is_not_taken_for_a_cancellation():
    assert look(single(**ended(0), isTerminated=True)).state is AppState.SUCCEEDED


@pytest.mark.parametrize("status", ["RUNNABLE", "STARTING", "RUNNING"])
def test_retries_are_attempts_but_the_first(status):
    past = ended(1)["attempts"]
    job = single(status=status, attempts=past * 2, retryStrategy={"attempts": 3})
    found = look(job)
    assert (found.restarts, found.replicas[0].attempt) == (2, 2)
    assert look(single(**{**ended(1), "attempts": past * 3})).restarts == 2


def test_a_reason_to_wait_is_told():
    found = look(single(status="RUNNABLE", statusReason="CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"))
    assert found.message == "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"


# -- nodes ---------------------------------------------------------------------------------------


def test_nodes_that_are_not_there_yet_wait():
    assert states(look(multinode("RUNNABLE"))) == ["PENDING"] * 3
    found = look(multinode("STARTING"), n0=RUNNING)
    assert states(found) == ["RUNNING", "PENDING", "PENDING"]
    assert found.state is AppState.RUNNING


def test_ids_are_those_in_the_role_and_hosts_are_told():
    interface = {"networkInterfaces": [{"privateIpv4Address": "10.0.0.7"}]}
    found = look(multinode(), n2={"status": "RUNNING", "container": interface})
    assert [(r.role, r.replica) for r in found.replicas] == [("w", 0), ("w", 1), ("b", 0)]
    assert found.replicas[2].host == "10.0.0.7"


def test_a_node_that_failed_fails_the_app_although_the_main_node_did_well():
    found = look(multinode("SUCCEEDED"), n0=ended(0), n1=ended(3), n2=ended(0))
    assert (found.state, states(found)[1]) == (AppState.FAILED, "FAILED")


def test_nodes_that_ended_because_the_main_one_did():
    late = ended(137, at=3000)
    found = look(multinode("SUCCEEDED"), n0=ended(0), n1=late, n2=ended(0))
    assert (found.state, states(found)[1]) == (AppState.SUCCEEDED, "CANCELLED")
    found = look(multinode("FAILED"), n0=ended(137), n1=late, n2=ended(5, at=1500))
    assert (found.state, states(found)) == (AppState.FAILED, ["FAILED", "CANCELLED", "FAILED"])
    assert found.fatal.key == ("b", 0)


def test_a_node_that_killed_itself_before_the_main_one_ended_has_failed():
    found = look(multinode("SUCCEEDED"), n0=ended(0), n1=ended(137, at=1500), n2=ended(0))
    assert (found.state, states(found)[1]) == (AppState.FAILED, "FAILED")


def test_who_was_ended_after_a_failure_and_who_failed():
    reason = f"{END_REASON} b/0"
    killed = ended(137, status_reason=reason)
    job = multinode("FAILED", statusReason=reason, isTerminated=True)
    found = look(job, n0=killed, n1=killed, n2=ended(137, at=1200))
    assert (found.state, states(found)) == (AppState.FAILED, ["CANCELLED", "CANCELLED", "FAILED"])
    assert not found.cancelled


def test_an_end_that_was_asked_for_is_told_before_the_service_tells_it():
    job = multinode(isTerminated=True)
    records = {0: RUNNING, 1: ended(3), 2: RUNNING}
    found = build_snapshot("q:app-x1", job, records, f"{END_REASON} w/1")
    assert (found.cancelled, found.state, found.fatal.key) == (False, AppState.RUNNING, ("w", 1))
    assert build_snapshot("q:app-x1", job, records).cancelled


def test_a_failure_waits_for_the_main_node_while_there_are_retries():
    job = multinode(retryStrategy={"attempts": 2})
    found = look(job, n0=RUNNING, n1=ended(1), n2=RUNNING)
    assert (found.fatal, states(found)[1]) == (None, "PENDING")
    found = look(multinode(), n0=RUNNING, n1=ended(1), n2=RUNNING)
    assert found.fatal.key == ("w", 1)


def test_a_job_that_failed_as_a_whole():
    words = "Job attempt duration exceeded timeout"
    found = look(multinode("FAILED", statusReason=words))
    assert (found.state, found.message) == (AppState.FAILED, words)


def test_the_app_goes_on_until_the_service_says_that_it_ended():
    assert look(multinode(), n0=ended(0), n1=ended(0), n2=ended(0)).state is AppState.RUNNING


def test_the_option_on_failure_is_read_back():
    assert look(multinode()).ends_on_failure
    tags = {"torchx.pytorch.org/on-failure": "wait"}
    assert not look(multinode(tags=tags)).ends_on_failure


def test_groups_without_names_are_told_apart():
    groups = [{"targetNodes": "0", "container": {}}, {"targetNodes": "1:", "container": {}}]
    job = multinode()
    job["nodeProperties"]["nodeRangeProperties"] = groups
    assert [role.name for role in look(job).roles] == ["node", "node-1"]


# -- rows, pages, streams ------------------------------------------------------------------------


def test_rows():
    job = {"jobName": "app-x1", "status": "FAILED", "statusReason": CANCEL_REASON}
    assert build_row("q", job).state is AppState.CANCELLED
    job["statusReason"] = f"{END_REASON} w/0"
    job["isTerminated"] = True
    row = build_row("q", job)
    assert (row.app_id, row.name, row.state) == ("q:app-x1", "app-x1", AppState.FAILED)


@pytest.mark.parametrize(
    ("arn", "url"),
    [
        (ARN, "https://eu-west-1.console.aws.amazon.com/batch/home?region=eu-west-1"),
        (ARN.replace("aws:", "aws-cn:", 1), "https://console.amazonaws.cn/batch/home?region="),
        (ARN.replace("aws:", "aws-us-gov:", 1), "https://console.amazonaws-us-gov.com/batch/"),
    ],
)
def test_the_page_of_a_job(arn, url):
    assert _job_ui_url(arn).startswith(url)
    assert _job_ui_url(arn).endswith("#jobs/mnp-job/1f2a")


@pytest.mark.parametrize("arn", ["", "x", "arn:aws:ecs:r:1:task/x", "arn:aws:batch:r:1:queue/x"])
def test_another_arn_has_no_page(arn):
    assert _job_ui_url(arn) is None


def test_each_attempt_has_a_stream():
    past = [ended(1, stream="a")["attempts"][0], {"container": {}, "stoppedAt": 9}]
    job = single(attempts=past, container={"logStreamName": "c"}, retryStrategy={"attempts": 3})
    plan = plan_of(look(job), [("w", 0)], 1)
    assert [(stream.key, stream.name) for stream in plan.streams] == [
        (LogKey("w", 0, 0), "a"),
        (LogKey("w", 0, 2), "c"),
    ]
    assert (plan.complete, plan.ended) == (True, False)


def test_a_replica_without_stream_is_looked_for():
    plan = plan_of(look(multinode(), n0=RUNNING), [("w", 0), ("w", 1)], 1)
    assert not plan.complete
    done = plan_of(look(single(**ended(0))), [("w", 0)], 1)
    assert (done.ended, done.ended_ms) == (True, 2000)


def test_where_the_streams_are():
    definition = "arn:aws:batch:eu-west-1:123456789012:job-definition/app-x1:1"
    place = place_of(single(jobDefinition=definition))
    assert (place.group, place.prefix) == ("/aws/batch/job", "app-x1/")
    options = {"logConfiguration": {"options": {"awslogs-group": "/team"}}}
    assert place_of(single(container=options)).group == "/team"


# -- why it waits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "environment", "words"),
    [
        ({}, {}, ""),
        ({"state": "DISABLED"}, {}, "the queue `q` is disabled"),
        ({"status": "INVALID", "statusReason": "why"}, {}, "the queue `q` is invalid: why"),
        ({}, {"state": "DISABLED"}, "the compute environment `e` is disabled"),
        ({}, {"status": "INVALID"}, "the compute environment `e` is invalid: no reason given"),
        (
            {},
            {"computeResources": {"maxvCpus": 1}},
            "the compute environment `e` has 1 CPUs at most, the job needs 2",
        ),
    ],
)
def test_why_it_waits(queue, environment, words):
    told = why_waiting(
        single(), {"jobQueueName": "q", **queue}, [{"computeEnvironmentName": "e", **environment}]
    )
    assert told == words


def test_one_environment_that_is_well_is_enough():
    environments = [{"computeEnvironmentName": "e", "state": "DISABLED"}, {}]
    assert why_waiting(single(), {}, environments) == ""


def test_the_place_in_the_queue():
    front = {"frontOfQueue": {"jobs": [{"jobArn": "other"}, {"jobArn": ARN}]}}
    assert place_in_queue(single(), front) == "waits for capacity at place 2 of its queue"
    assert place_in_queue(single(), {}) == ""
