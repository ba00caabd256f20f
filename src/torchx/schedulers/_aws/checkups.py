"""What schedulers on AWS need: boto3, credentials, a region, the right to look."""

from importlib.util import find_spec

from torchx.errors import BackendUnavailable
from torchx.schedulers._core.checkups import Checkup, Finding, broken, neutral, ok

from .errors import AwsRefused, NoCredentials, NotAllowed
from .session import AwsService, local_session

_CONFIGURE = "aws configure"


def aws_checkups(service: str, operation: str, **params: object) -> list[Checkup]:
    """Checks of one service, by an operation that changes nothing."""
    absent = _absent()
    if absent is not None:
        return [Checkup("account", lambda: absent)]
    return [
        Checkup("account", _account),
        Checkup("service", lambda: _service(service, operation, params)),
    ]


def _absent() -> Finding | None:
    if find_spec("boto3") is None:
        return neutral("not set up: boto3 is not installed", "pip install 'torchx[aws]'")
    try:
        session = local_session()
        if session.get_credentials() is None:
            return neutral("not set up: no credentials", _CONFIGURE)
    except AwsRefused as err:
        return broken(str(err), _CONFIGURE)
    if session.region_name is None:
        return broken("no region is set", "aws configure set region REGION")
    return None


def _account() -> Finding:
    try:
        who = AwsService("sts").call("get_caller_identity")
    except (AwsRefused, BackendUnavailable) as err:
        return broken(str(err), "aws sts get-caller-identity")
    return ok(f"{who.get('Arn')} in region {local_session().region_name}")


def _service(name: str, operation: str, params: dict[str, object]) -> Finding:
    try:
        AwsService(name).call(operation, **params)
    except (NotAllowed, NoCredentials) as err:
        return broken(str(err), "Ask the administrators of the account for the right")
    except (AwsRefused, BackendUnavailable) as err:
        return broken(str(err), "Look at the network and the region")
    return ok(f"`{name}` answers")
