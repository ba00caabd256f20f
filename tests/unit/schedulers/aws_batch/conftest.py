"""The fake of AWS, to which boto3 is led."""

from tests.unit.schedulers.aws.conftest import aws, running_aws  # noqa: F401 - fixtures
