"""What ``torchx doctor`` finds about AWS Batch, and about AWS as such."""

import pytest

from tests.unit.workspace.registry.fake_registry import FakeRegistry
from torchx.schedulers.aws_batch_scheduler import create_scheduler
from torchx.schedulers.checkups import Configured


def findings(**cfg):
    checks = create_scheduler("test").checkups(Configured(cfg) if cfg else None)
    return {check.name: check.check() for check in checks}


def test_all_is_well(aws):
    found = findings()
    assert [*found] == ["credentials", "clock", "queues", "registry"]
    assert found["credentials"].text == "arn:aws:iam::123456789012:user/tester in eu-west-1"
    assert {found[name].verdict.value for name in ("credentials", "clock", "queues")} == {"ok"}
    assert found["queues"].options == {"queue": "queue"}
    assert "eu-west-1" in found["queues"].text
    assert found["registry"].verdict.value == "neutral"


@pytest.mark.parametrize("fields", [{"state": "DISABLED"}, {"status": "INVALID"}])
def test_no_queue_starts_jobs(aws, fields):
    aws.admin("batch/queue", {"name": "queue", "queue": fields})
    found = findings()["queues"]
    assert (found.verdict.value, found.text) == (
        "broken",
        "no queue in eu-west-1 takes and starts jobs",
    )


def test_the_queue_that_is_configured_is_looked_for(aws):
    assert findings(queue="queue")["queues"].verdict.value == "ok"
    found = findings(queue="qeueu")["queues"]
    assert (found.verdict.value, found.fix) == ("broken", "queue = queue")
    assert found.text == "`qeueu` is none of the open queues in eu-west-1: queue"


def test_the_region_that_is_configured_is_used(aws):
    assert findings(region="us-west-2")["credentials"].text.endswith("in us-west-2")


def test_without_credentials_it_is_not_set_up(aws, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (found,) = findings().values()
    assert (found.verdict.value, found.fix) == ("neutral", "aws configure")


def test_without_a_region_it_is_not_set_up(aws, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    (found,) = findings().values()
    assert (found.verdict.value, found.fix) == ("neutral", "aws configure")


def test_a_profile_that_there_is_not_is_broken(aws):
    (found,) = findings(profile="nosuch").values()
    assert (found.verdict.value, found.fix) == ("broken", "aws configure")
    assert "nosuch" in found.text


@pytest.mark.parametrize("fault", ["expired", "denied", "throttle", "drop"])
def test_what_goes_wrong_is_told(aws, fault):
    aws.fault(fault, times=-1)
    found = findings()
    assert found["queues"].verdict.value == "broken"
    assert found["queues"].fix
    gone = fault in ("throttle", "drop")  # of one service, which jobs do not need
    assert found["credentials"].verdict.value == ("neutral" if gone else "broken")


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "text"),
    [
        (0, "ok", "agrees with that of AWS within"),
        (120, "warning", "that of AWS is 120 s ahead"),
        (-3600, "broken", "that of AWS is 60 min behind: AWS refuses what was signed more than"),
    ],
)
@pytest.mark.parametrize("refused", [False, True])
def test_a_clock_that_is_wrong(aws, ahead_s, verdict, text, refused):
    if refused:  # as it is by AWS when it is very wrong
        aws.fault("expired", "sts", times=-1)
    aws.set_clock(ahead_s + 0.5)  # a date has whole seconds
    found = findings()["clock"]
    assert found.verdict.value == verdict
    assert text in found.text


def test_a_clock_that_nobody_tells(aws):
    aws.fault("drop", "sts", times=-1)
    assert findings()["clock"].verdict.value == "neutral"


def test_answers_that_are_not_of_aws(aws, monkeypatch):
    registry = FakeRegistry()  # anything that speaks HTTP, as a proxy does
    stop = registry.serve()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{registry.host}")
        found = findings()
    finally:
        stop()
    assert found["credentials"].verdict.value == "neutral"
    assert "is not one of AWS" in found["credentials"].text
    assert found["queues"].verdict.value == "broken"
    assert found["clock"].verdict.value in ("ok", "neutral")


def test_without_boto3_it_is_told_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (found,) = findings().values()
    assert (found.verdict.value, found.fix) == ("neutral", "pip install 'torchx[aws]'")
