"""What jobs on AWS Batch need: boto3, credentials and a region, and a queue that starts jobs."""

from torchx._aws.session import AwsService
from torchx.schedulers._aws.checkups import checkups_of
from torchx.schedulers._core.checkups import Checkup, Finding, broken, ok

_PAGE = "See `From nothing to a finished job` on the page of `aws_batch`"


def checkups(batch: AwsService) -> list[Checkup]:
    """All checks; one alone without boto3."""
    return checkups_of("queues", lambda: _queues(batch))


def _queues(batch: AwsService) -> Finding:
    queues = batch.call_once("describe_job_queues").get("jobQueues") or []
    opened = [
        str(queue.get("jobQueueName"))
        for queue in queues
        if queue.get("state") == "ENABLED" and queue.get("status", "VALID") == "VALID"
    ]
    if not opened:
        return broken(f"no queue in {batch.region} takes and starts jobs", _PAGE)
    return ok(f"queues in {batch.region}: {', '.join(opened)}", queue=opened[0])
