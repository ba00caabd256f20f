"""What training jobs need: an account of AWS that may use SageMaker."""

from torchx.errors import TorchXError
from torchx.schedulers._aws.checkups import account_checkups
from torchx.schedulers._aws.session import AwsService
from torchx.schedulers._core.checkups import Checkup, Finding, broken, ok

_POLICY = "Add what docs/schedulers/aws_sagemaker.md lists to your policy"


def checkups() -> list[Checkup]:
    """All checks; one alone where AWS is not set up."""
    found, set_up = account_checkups()
    return [*found, Checkup("training jobs", _jobs)] if set_up else found


def _jobs() -> Finding:
    try:
        AwsService("sagemaker").call_once("list_training_jobs", MaxResults=1)
    except TorchXError as err:
        return broken(str(err), _POLICY)
    return ok("they can be listed")
