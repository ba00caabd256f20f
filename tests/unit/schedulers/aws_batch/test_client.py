"""Calls of AWS Batch: what is made once, what is left behind, how many calls it takes."""

import os
import signal
import threading
import time
from collections import Counter
from datetime import datetime, timezone

import pytest

from torchx._aws.errors import AnswerLost, NoCredentials, Throttled
from torchx.errors import BackendUnavailable, InvalidInput, UnsupportedRequest
from torchx.runner import Runner
from torchx.schedulers.api import Stream
from torchx.schedulers.aws_batch_scheduler import (
    TAG_TORCHX_VER,
    create_scheduler,
    to_datetime,
    to_millis_since_epoch,
)
from torchx.specs import AppDef, AppState, Resource, Role, is_terminal

SMALL = Resource(cpu=1, gpu=0, memMB=64)


def app(script="true", replicas=1, **more):
    role = Role("w", "i", entrypoint="sh", args=["-c", script], num_replicas=replicas, **more)
    role.resource = SMALL
    return AppDef("app", [role])


@pytest.fixture
def scheduler(aws):
    scheduler = create_scheduler("test")
    yield scheduler
    aws.no_faults()
    for row in scheduler.list():
        scheduler.cancel(row.app_id)
    scheduler.close()


def submit(scheduler, *args, queue="queue", **more):
    return scheduler.submit(app(*args, **more), {"queue": queue})


def end(scheduler, app_id):
    deadline = time.monotonic() + 30
    while not is_terminal((found := scheduler.describe(app_id)).state):
        assert time.monotonic() < deadline
        scheduler.wait_for_change(app_id, 0.05)
    return found


def until(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def counts(aws):
    return Counter(call.partition(":")[2] for call in aws.calls() if call.startswith("batch:"))


# -- once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["RegisterJobDefinition", "SubmitJob"])
@pytest.mark.parametrize("fault", ["lose", "throttle", "server_error", "drop"])
def test_a_launch_has_its_effect_once(scheduler, aws, call, fault):
    aws.fault(fault, f"batch:{call}")
    app_id = submit(scheduler)
    assert end(scheduler, app_id).state is AppState.SUCCEEDED
    assert [row.app_id for row in scheduler.list()] == [app_id]
    definitions = scheduler._client.describe_job_definitions()["jobDefinitions"]
    assert len(definitions) == 1


@pytest.mark.parametrize("fault", ["denied", "expired", "throttle"])
def test_a_definition_without_its_job_is_removed(scheduler, aws, fault):
    aws.fault(fault, "batch:SubmitJob", times=-1)
    with pytest.raises((InvalidInput, BackendUnavailable)):
        submit(scheduler)
    assert aws.admin("batch/live", {}) == []


def test_a_definition_that_cannot_be_removed_is_named(scheduler, aws, caplog):
    aws.fault("denied", "batch:(SubmitJob|Deregister)", times=-1)
    with pytest.raises(InvalidInput, match="AccessDeniedException, request id fake-"):
        submit(scheduler)
    assert "aws batch deregister-job-definition --job-definition arn:aws:batch" in caplog.text


def test_a_submission_that_nobody_can_tell_of_is_told(scheduler, aws, caplog):
    aws.fault("drop", "batch:(SubmitJob|ListJobs)", times=-1)
    with pytest.raises(AnswerLost, match=r"the job `app-.*` in the queue `queue` may have been"):
        submit(scheduler)
    assert "is kept" in caplog.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("call", ["register_job_definition", "submit_job"])
def test_an_interrupted_submission_leaves_nothing(aws, call, number):
    class Interrupting:
        """A client with which a signal comes after one call has its effect, before its answer."""

        def __init__(self, client):
            self._client = client

        def __getattr__(self, name):
            found = getattr(self._client, name)
            return found if name != call else lambda **params: self._interrupt(found, params)

        def _interrupt(self, found, params):
            found(**params)
            os.kill(os.getpid(), number)

    client = create_scheduler("test")._client
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        submit(create_scheduler("test", client=Interrupting(client)), "sleep 60")
    until(lambda: not aws.admin("batch/live", {}))
    (definition,) = client.describe_job_definitions()["jobDefinitions"]
    assert definition["status"] == "INACTIVE"


# -- calls ---------------------------------------------------------------------------------------


def test_a_list_of_1000_jobs(scheduler, aws):
    aws.admin("batch/jobs", {"count": 950, "name": "ours", "tags": {TAG_TORCHX_VER: "1"}})
    aws.admin("batch/jobs", {"count": 50, "name": "others"})
    aws.requests(forget=True)
    rows = scheduler.list()
    assert len(rows) == 950
    assert rows[0].app_id == "queue:ours-949"
    assert sum(counts(aws).values()) <= 22


def test_a_list_of_one_queue(scheduler, aws):
    aws.admin("batch/queue", {"name": "other"})
    for queue in ("queue", "other"):
        body = {"count": 1, "name": queue, "queue": queue, "tags": {TAG_TORCHX_VER: "1"}}
        aws.admin("batch/jobs", body)
    assert [row.app_id for row in scheduler.list({"queue": "other"})] == ["other:other-0"]
    assert sorted(row.app_id for row in scheduler.list()) == ["other:other-0", "queue:queue-0"]


def test_waiting_for_100_jobs_asks_once_for_all_of_them(scheduler, aws):
    aws.admin("batch/settings", {"hold": True})
    ids = [submit(scheduler) for _ in range(100)]
    runner = Runner("test", {"aws_batch": lambda session_name, **_: scheduler})
    found = []

    def wait(app_id):
        status = runner.wait(f"aws_batch://test/{app_id}", wait_interval=2)
        found.append(status.state)

    threads = [threading.Thread(target=wait, args=(app_id,), daemon=True) for app_id in ids]
    for thread in threads:
        thread.start()
    until(lambda: counts(aws)["DescribeJobs"] >= 1)
    # the first looks are spread, those that follow are together: as soon as the threads have begun
    until(lambda: 1 <= looks_in(aws, 4) <= 4 / 2 + 2)
    aws.admin("batch/settings", {"hold": False})
    for thread in threads:
        thread.join(60)
    assert found == [AppState.SUCCEEDED] * 100


def looks_in(aws, most_s):
    """How often the service is asked about jobs in a time that is at most so long."""
    aws.requests(forget=True)
    threading.Event().wait(most_s)
    return counts(aws)["DescribeJobs"]


def test_a_look_from_elsewhere_finds_the_job_by_its_name(scheduler, aws):
    app_id = submit(scheduler, "sleep 60")
    other = create_scheduler("other")
    assert other.describe(app_id).app_id == app_id
    other.cancel(app_id)
    assert end(scheduler, app_id).state is AppState.CANCELLED


def test_the_name_alone_is_looked_for_in_all_queues(scheduler, aws):
    aws.admin("batch/queue", {"name": "other"})
    app_id = submit(scheduler, queue="other")
    end(scheduler, app_id)
    name = app_id.partition(":")[2]  # what `macros.app_id` is in the job
    assert create_scheduler("elsewhere").describe(name).state is AppState.SUCCEEDED


@pytest.mark.parametrize("app_id", ["queue:nothing", "nowhere:app", "x", ":", "queue:", ":app"])
def test_unknown_apps(scheduler, app_id):
    assert scheduler.describe(app_id) is None
    scheduler.cancel(app_id)
    scheduler.delete(app_id)


def test_delete_deregisters_the_definition(scheduler, aws):
    app_id = submit(scheduler)
    end(scheduler, app_id)
    for _ in range(2):
        scheduler.delete(app_id)
    (definition,) = scheduler._client.describe_job_definitions()["jobDefinitions"]
    assert definition["status"] == "INACTIVE"


# -- what is told --------------------------------------------------------------------------------


def test_why_a_job_waits_is_asked_for_when_it_has_waited(scheduler, aws):
    too_small = {"computeResources": {"type": "EC2", "maxvCpus": 0, "subnets": ["s"]}}
    aws.admin("batch/queue", {"name": "small", "environment": too_small})
    aws.admin("batch/settings", {"hold": True, "created_ago_s": 60})
    app_id = submit(scheduler, queue="small")
    deadline = time.monotonic() + 20
    while "has 0 CPUs at most, the job needs 1" not in (found := scheduler.describe(app_id)).msg:
        assert time.monotonic() < deadline, found.msg
        time.sleep(0.05)
    scheduler.describe(app_id)
    assert counts(aws)["DescribeComputeEnvironments"] == 1
    aws.admin("batch/settings", {"hold": False})


def test_a_timeout_is_told(scheduler, aws):
    aws.admin("batch/settings", {"second_s": 0.005})
    app_id = scheduler.submit(app("sleep 60"), {"queue": "queue", "timeout_s": 60})
    found = end(scheduler, app_id)
    assert "Job attempt duration exceeded timeout" in found.msg
    assert found.state is AppState.FAILED


def test_a_missing_queue_is_told_in_the_words_of_aws(scheduler, aws):
    with pytest.raises(InvalidInput, match=r"batch:SubmitJob.*nowhere does not exist.*fake-"):
        submit(scheduler, queue="nowhere")
    assert aws.admin("batch/live", {}) == []


def test_credentials_that_have_expired(scheduler, aws):
    aws.fault("expired", times=-1)
    for call in (lambda: submit(scheduler), lambda: scheduler.describe("queue:x"), scheduler.list):
        with pytest.raises(NoCredentials, match=r"have expired.*aws sso login"):
            call()


def test_throttling_for_long(scheduler, aws):
    aws.fault("throttle", "Describe", times=-1)
    app_id = submit(scheduler)
    with pytest.raises(Throttled, match="Rate exceeded"):
        scheduler.describe(app_id)


def test_streams_are_one(scheduler):
    app_id = submit(scheduler)
    with pytest.raises(UnsupportedRequest, match="stdout"):
        scheduler.log_iter(app_id, "w", streams=Stream.STDOUT)


def test_a_log_group_of_ones_own(scheduler, aws):
    app_id = scheduler.submit(app("echo hi"), {"queue": "queue", "log_group": "/team"})
    end(scheduler, app_id)
    assert [*scheduler.log_iter(app_id, "w")] == ["hi\n"]
    (request, *_) = (r for r in aws.requests() if r["call"] == "logs:GetLogEvents")
    assert request["params"]["logGroupName"] == "/team"


def test_region_and_profile_go_with_the_app(scheduler, aws):
    app_id = scheduler.submit(app(), {"queue": "queue", "region": "cn-north-1"})
    end(scheduler, app_id)
    other_shell = create_scheduler("other")
    assert other_shell.describe(app_id).state is AppState.SUCCEEDED
    assert {r["region"] for r in aws.requests()} == {"cn-north-1"}


# -- clients that are given ----------------------------------------------------------------------


def test_clients_that_are_given_are_used(aws):
    ours = create_scheduler("test")
    client, log_client = ours._client, ours._log_client
    scheduler = create_scheduler("test", client=client, log_client=log_client)
    assert (scheduler._client, scheduler._log_client) == (client, log_client)
    assert scheduler.backend == "aws_batch"
    app_id = submit(scheduler, "echo hi")
    assert end(scheduler, app_id).state is AppState.SUCCEEDED
    assert [*scheduler.log_iter(app_id, "w")] == ["hi\n"]
    assert [row.app_id for row in scheduler.list()] == [app_id]


def test_times_there_and_back():
    moment = datetime(2024, 2, 3, 4, 5, 6, 789_000, timezone.utc)
    assert to_millis_since_epoch(moment) == 1706933106789
    assert to_datetime(1706933106789) == moment
