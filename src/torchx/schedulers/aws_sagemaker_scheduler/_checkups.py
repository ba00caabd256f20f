"""Checks for training jobs: boto3, credentials and region, and a policy for SageMaker."""

from torchx._aws.errors import NotAllowed, NotThere
from torchx._aws.session import AwsService
from torchx.errors import BackendUnavailable
from torchx.schedulers._aws.checkups import ServiceOf, checkups_of
from torchx.schedulers._core.checkups import (
    Checkup,
    Configured,
    Finding,
    broken,
    neutral,
    ok,
)
from torchx.schedulers._image_checkups import container_checkups

_PAGE = "See the page of `aws_sagemaker`: role = NAME in .torchxconfig"


def checkups(service_of: ServiceOf, configured: Configured | None) -> list[Checkup]:
    """Returns all checks; only one if AWS is not set up."""
    given = configured or Configured()
    jobs = service_of(given.text("region"), given.text("profile"))
    found = checkups_of("training jobs", jobs, lambda: _jobs(jobs))
    if len(found) == 1:
        return found
    role = Checkup("role", lambda: _role(jobs, given.text("role")))
    return [*found, role, *container_checkups(given)]


def _jobs(jobs: AwsService) -> Finding:
    jobs.call_once("list_training_jobs", MaxResults=1)
    return ok(f"SageMaker answers in {jobs.region}")


def _role(jobs: AwsService, role: str | None) -> Finding:
    """Checks that the jobs' role exists, if the user may read roles."""
    if role is None:
        return neutral("no `role` is configured: give it with each job", _PAGE)
    try:
        found = jobs.sibling("iam").call_once("get_role", RoleName=role.rpartition("/")[2])
    except NotThere as err:
        return broken(str(err), _PAGE)
    except (NotAllowed, BackendUnavailable) as err:  # jobs do not need the permission to read it
        return neutral(f"whether there is `{role}` is not known: {err}")
    return ok(str((found.get("Role") or {}).get("Arn")))
