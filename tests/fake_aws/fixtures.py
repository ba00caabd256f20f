"""The fake of AWS, to which boto3 is led; each ``conftest.py`` that wants it imports both names."""

from collections.abc import Iterator

import pytest

from tests.fake_aws.server import FakeAws


@pytest.fixture(scope="module")
def running_aws() -> Iterator[FakeAws]:
    with FakeAws() as aws:
        yield aws


@pytest.fixture
def aws(running_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    """As new, and found by boto3."""
    running_aws.reset()
    for name, value in running_aws.environment().items():
        monkeypatch.setenv(name, value)
    return running_aws
