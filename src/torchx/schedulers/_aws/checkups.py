"""What all jobs on AWS need: boto3, a region, and credentials that AWS accepts."""

from importlib.util import find_spec

from torchx.errors import TorchXError
from torchx.schedulers._core.checkups import Checkup, Finding, broken, neutral, ok

from .session import AwsService, local_session

_SIGN_IN = "aws sso login, or aws configure"


def account_checkups() -> tuple[list[Checkup], bool]:
    """The checks of the account, and whether AWS is set up so far that more can be checked."""
    absent = _absent()
    if absent is not None:
        return [Checkup("account", lambda: absent)], False
    return [Checkup("account", _account)], True


def _absent() -> Finding | None:
    if find_spec("boto3") is None:
        return neutral("not set up: boto3", "pip install 'torchx[aws]'")
    try:
        session = local_session()
        if session.get_credentials() is None:
            return neutral("not set up: there are no credentials for AWS", _SIGN_IN)
    except TorchXError as err:
        return broken(str(err), _SIGN_IN)
    except Exception as err:  # noqa: BLE001 - of a provider of credentials, whatever it is
        return broken(f"the credentials for AWS cannot be read: {err}", _SIGN_IN)
    if session.region_name is None:
        return neutral("not set up: no region of AWS", "export AWS_REGION=us-east-1, or another")
    return None


def _account() -> Finding:
    try:
        found = AwsService("sts").call_once("get_caller_identity")
    except TorchXError as err:
        return broken(str(err), _SIGN_IN)
    region = local_session().region_name
    return ok(f"account {found.get('Account')} in {region}, as {found.get('Arn')}")
