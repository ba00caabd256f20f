"""What ``torchx doctor`` finds about AWS Batch."""

import pytest

from torchx.schedulers.aws_batch_scheduler import create_scheduler


def findings():
    return {check.name: check.check() for check in create_scheduler("test").checkups()}


def test_all_is_well(aws):
    (found,) = findings().values()
    assert (found.verdict.value, found.options) == ("ok", {"queue": "queue"})
    assert "eu-west-1" in found.text


@pytest.mark.parametrize("fields", [{"state": "DISABLED"}, {"status": "INVALID"}])
def test_no_queue_starts_jobs(aws, fields):
    aws.admin("batch/queue", {"name": "queue", "queue": fields})
    (found,) = findings().values()
    assert (found.verdict.value, found.text) == (
        "broken",
        "no queue in eu-west-1 takes and starts jobs",
    )


def test_without_credentials_it_is_not_set_up(aws, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (found,) = findings().values()
    assert (found.verdict.value, found.fix) == ("neutral", "aws configure")


@pytest.mark.parametrize("fault", ["expired", "denied", "throttle", "drop"])
def test_what_goes_wrong_is_told(aws, fault):
    aws.fault(fault, times=-1)
    (found,) = findings().values()
    assert found.verdict.value == "broken"
    assert found.fix


def test_without_boto3_it_is_told_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (found,) = findings().values()
    assert (found.verdict.value, found.fix) == ("neutral", "pip install 'torchx[aws]'")
