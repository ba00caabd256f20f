"""What training jobs need: boto3, credentials and a region, and a policy that allows SageMaker."""

from torchx._aws.session import AwsService
from torchx.schedulers._aws.checkups import checkups_of
from torchx.schedulers._core.checkups import Checkup, Finding, ok


def checkups(jobs: AwsService) -> list[Checkup]:
    """All checks; one alone without boto3."""
    return checkups_of("training jobs", lambda: _jobs(jobs))


def _jobs(jobs: AwsService) -> Finding:
    jobs.call_once("list_training_jobs", MaxResults=1)
    return ok(f"SageMaker answers in {jobs.region}")
