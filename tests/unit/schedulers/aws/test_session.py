"""Calls of AWS: errors in its own words, repetitions, what must happen once."""

import subprocess
import sys
import threading

import pytest

from torchx._aws.errors import AnswerLost, AwsRefused, NoCredentials, NotThere, Throttled
from torchx._aws.once import exactly_once
from torchx._aws.session import AwsService, local_session
from torchx.errors import BackendUnavailable, InvalidInput, NotInstalled

STREAM = {"logGroupName": "g", "logStreamName": "s"}


@pytest.fixture
def logs(aws):
    aws.admin("logs/write", {"group": "g", "stream": "s", "lines": [[1000, "hello"]]})
    return AwsService("logs")


def test_a_call_gives_the_answer(logs):
    answer = logs.call("get_log_events", **STREAM)
    assert [event["message"] for event in answer["events"]] == ["hello"]


def test_all_pages_are_read(logs, aws):
    for i in range(120):
        aws.admin("logs/write", {"group": "g", "stream": f"p/{i:03d}", "lines": [[1, "x"]]})
    found = logs.items("describe_log_streams", "logStreams", logGroupName="g")
    assert len([*found]) == 121
    assert aws.calls().count("logs:DescribeLogStreams") == 3


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("throttle", Throttled, "Rate exceeded (ThrottlingException, request id fake-"),
        ("server_error", AnswerLost, "Internal server error (InternalFailure, request id fake-"),
        ("expired", NoCredentials, "have expired: The security token included in the request is"),
        ("denied", AwsRefused, "is not authorized to perform that (AccessDeniedException, request"),
        ("drop", AnswerLost, "Connection was closed"),
    ],
)
def test_an_error_has_the_words_of_aws(logs, aws, fault, kind, words):
    with aws.faulty(fault, times=-1), pytest.raises(kind) as caught:
        logs.call("get_log_events", **STREAM)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", ["throttle", "server_error", "drop"])
def test_what_passes_is_repeated(logs, aws, fault):
    aws.fault(fault, times=2)
    assert logs.call("get_log_events", **STREAM)["events"]
    assert aws.calls() == ["logs:GetLogEvents"] * 3


@pytest.mark.parametrize("fault", ["throttle", "server_error", "drop"])
def test_a_call_that_must_not_happen_twice_is_not_repeated(logs, aws, fault):
    aws.fault(fault)
    with pytest.raises(BackendUnavailable):
        logs.call_once("get_log_events", **STREAM)
    assert aws.calls() == ["logs:GetLogEvents"]


def test_what_does_not_exist_is_told_apart(logs):
    with pytest.raises(NotThere, match="log group does not exist") as caught:
        logs.call("get_log_events", logGroupName="other", logStreamName="s")
    assert caught.value.code == "ResourceNotFoundException"
    assert caught.value.request_id.startswith("fake-")


def test_a_request_that_boto3_refuses_is_one_line(logs):
    with pytest.raises(InvalidInput, match="limit") as caught:
        logs.call("get_log_events", **STREAM, limit="many")
    assert "\n" not in str(caught.value)


def test_without_credentials_it_is_told_how_to_get_some(aws, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(NoCredentials, match="aws sso login"):
        AwsService("logs").call("describe_log_groups")


def test_without_a_region_it_is_told_how_to_set_one(aws, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(InvalidInput, match="option `region`"):
        AwsService("logs").call("describe_log_groups")
    monkeypatch.setenv("AWS_REGION", "us-gov-west-1")
    assert AwsService("logs").region == "us-gov-west-1"


def test_a_region_of_the_caller_comes_first(aws):
    assert AwsService("logs", region="cn-north-1").region == "cn-north-1"


def test_a_profile_that_does_not_exist_is_named(aws):
    with pytest.raises(InvalidInput, match="nobody"):
        AwsService("logs", profile="nobody").call("describe_log_groups")


def test_nothing_listens(monkeypatch, aws):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(BackendUnavailable, match="Could not connect"):
        AwsService("logs").call("describe_log_groups")


def test_each_thread_has_a_session_of_its_own(aws):
    found = []
    thread = threading.Thread(target=lambda: found.append(local_session()))
    thread.start()
    thread.join()
    assert local_session() is local_session()
    assert found[0] is not local_session()


def test_without_boto3_it_is_told_what_to_install(aws, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "af-south-1")  # another session
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(NotInstalled, match=r"pip install 'torchx\[aws\]'"):
        AwsService("logs").call("describe_log_groups")


def test_nothing_of_boto3_is_imported_before_it_is_used():
    code = (
        "import sys; from torchx.schedulers._aws import cloudwatch; "
        "from torchx._aws import once, session; "
        "session.AwsService('batch'); print('boto3' in sys.modules or 'botocore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"


# -- once ----------------------------------------------------------------------------------------


class Maker:
    """Makes something; each call has an outcome."""

    def __init__(self, *outcomes):
        self.outcomes = [*outcomes]
        self.made = 0

    def create(self):
        outcome = self.outcomes.pop(0)
        if outcome in ("ok", "lost"):
            self.made += 1
        if outcome == "lost":
            raise AnswerLost("no answer")
        if isinstance(outcome, Exception):
            raise outcome
        return "created"

    def find(self):
        return "found" if self.made else None


def test_what_was_made_although_the_answer_was_lost_is_found():
    maker = Maker("lost")
    assert exactly_once(maker.create, maker.find, "job `x`") == "found"
    assert maker.made == 1


def test_what_was_not_made_is_made_later():
    maker = Maker(Throttled("later"), "ok")
    assert exactly_once(maker.create, maker.find, "job `x`", (0.0,)) == "created"
    assert maker.made == 1


def test_a_refusal_is_not_repeated():
    maker = Maker(AwsRefused("no"), "ok")
    with pytest.raises(AwsRefused):
        exactly_once(maker.create, maker.find, "job `x`")
    assert maker.made == 0


def test_where_it_cannot_be_found_out_that_is_said():
    def find():
        raise BackendUnavailable("away")

    with pytest.raises(AnswerLost, match=r"job `x` may have been made.*away"):
        exactly_once(Maker("lost").create, find, "job `x`")
