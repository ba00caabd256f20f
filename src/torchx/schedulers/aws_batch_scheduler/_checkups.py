"""What jobs on AWS Batch need: boto3, credentials and a region, and a queue that starts jobs."""

import importlib.util

from torchx.errors import BackendUnavailable
from torchx.schedulers._aws.errors import AwsRefused, NoCredentials
from torchx.schedulers._aws.session import AwsService
from torchx.schedulers._core.checkups import Checkup, Finding, broken, neutral, ok

_PAGE = "See `From nothing to a finished job` on the page of `aws_batch`"


def checkups(batch: AwsService) -> list[Checkup]:
    """All checks; one alone without boto3."""
    if importlib.util.find_spec("boto3") is None:
        missing = neutral("not set up: the package `boto3` is missing", "pip install 'torchx[aws]'")
        return [Checkup("package", lambda: missing)]
    return [Checkup("queues", lambda: _queues(batch))]


def _queues(batch: AwsService) -> Finding:
    """One question answers for credentials, region, rights and queues."""
    try:
        queues = batch.call_once("describe_job_queues").get("jobQueues") or []
    except NoCredentials as err:
        if err.code:  # there are some, and AWS does not accept them
            return broken(str(err), "aws sso login")
        return neutral(f"not set up: {err}", "aws configure")
    except (AwsRefused, BackendUnavailable) as err:
        return broken(str(err), "Check the region, the profile and your policy")
    opened = [
        str(queue.get("jobQueueName"))
        for queue in queues
        if queue.get("state") == "ENABLED" and queue.get("status", "VALID") == "VALID"
    ]
    if not opened:
        return broken(f"no queue in {batch.region} takes and starts jobs", _PAGE)
    return ok(f"queues in {batch.region}: {', '.join(opened)}", queue=opened[0])
