"""Checks for AWS Batch: boto3, credentials and region, and a queue that starts jobs."""

from torchx._aws.session import AwsService
from torchx.schedulers._aws.checkups import ServiceOf, checkups_of
from torchx.schedulers._core.checkups import Checkup, Configured, Finding, broken, ok
from torchx.schedulers._image_checkups import container_checkups

_PAGE = "See `From nothing to a finished job` on the page of `aws_batch`"


def checkups(service_of: ServiceOf, configured: Configured | None) -> list[Checkup]:
    """All checks; one alone where AWS is not set up."""
    given = configured or Configured()
    batch = service_of(given.text("region"), given.text("profile"))
    found = checkups_of("queues", batch, lambda: _queues(batch, given.text("queue")))
    return found if len(found) == 1 else found + container_checkups(given)


def _queues(batch: AwsService, wanted: str | None) -> Finding:
    queues = batch.call_once("describe_job_queues").get("jobQueues") or []
    opened = [
        str(queue.get("jobQueueName"))
        for queue in queues
        if queue.get("state") == "ENABLED" and queue.get("status", "VALID") == "VALID"
    ]
    if not opened:
        return broken(f"no queue in {batch.region} takes and starts jobs", _PAGE)
    names = f"queues in {batch.region}: {', '.join(opened)}"
    if wanted is None:
        return ok(names, queue=opened[0])
    arns = [str(queue.get("jobQueueArn")) for queue in queues]
    if wanted in opened or wanted in arns:
        return ok(names)
    return broken(f"`{wanted}` is none of the open {names}", f"queue = {opened[0]}")
