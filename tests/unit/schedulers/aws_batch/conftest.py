"""The fake of AWS, to which boto3 is led."""

from tests.fake_aws.fixtures import aws, running_aws  # noqa: F401 - fixtures
