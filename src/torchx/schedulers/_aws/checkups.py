"""Checks for jobs on AWS: boto3, credentials, region, clock, and a policy that allows
it."""

import importlib.util
import time
from collections.abc import Callable

from torchx._aws.errors import AwsRefused, NoCredentials, NoRegion
from torchx._aws.session import AwsService
from torchx.errors import BackendUnavailable, TorchXError
from torchx.schedulers._core.checkups import Checkup, Finding, broken, neutral, ok
from torchx.schedulers._core.clocks import Limit, clock_finding, parse_http_date

ServiceOf = Callable[[str | None, str | None], AwsService]
"""Gives the service of a region and a profile; ``None`` for the user's defaults."""

_SIGNED = Limit(300, "AWS refuses what was signed more than 5 min before or after its own time")
"""https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html"""
_IDENTITY = "get_caller_identity"
"""What everybody may ask for, whatever the policy says."""


def checkups_of(name: str, service: AwsService, ask: Callable[[], Finding]) -> list[Checkup]:
    """Checks of the account and the clock, and one that a question to AWS answers.

    One alone without boto3, credentials or region: AWS is not set up then.

    Args:
        service: whose region and profile are used.
        ask: its answer tells of the policy: errors are findings.
    """
    if importlib.util.find_spec("boto3") is None:
        missing = neutral("not set up: the package `boto3` is missing", "pip install 'torchx[aws]'")
        return [Checkup("package", lambda: missing)]
    absent = _absent(service)
    if absent is not None:
        return [Checkup("credentials", lambda: absent)]
    sts = service.sibling("sts")
    return [
        Checkup("credentials", lambda: _answer(lambda: _identity(sts))),
        Checkup("clock", lambda: _clock(sts)),
        Checkup(name, lambda: _answer(ask)),
    ]


def _absent(service: AwsService) -> Finding | None:
    try:
        service.require_access()
    except (NoCredentials, NoRegion) as err:
        return neutral(f"not set up: {err}", "aws configure")
    except TorchXError as err:  # such as a profile that there is not
        return broken(str(err), "aws configure")
    return None


def _answer(ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except NoCredentials as err:  # they exist, but AWS does not accept them
        return broken(str(err), "aws sso login")
    except (AwsRefused, BackendUnavailable) as err:
        return broken(str(err), "Check the region, the profile and your policy")


def _identity(sts: AwsService) -> Finding:
    try:
        whose = sts.call_once(_IDENTITY)
    except BackendUnavailable as err:  # some networks lead to single services only
        return neutral(f"there are some, AWS does not tell whose: {err}")
    return ok(f"{whose.get('Arn')} in {sts.region}")


def _clock(sts: AwsService) -> Finding:
    try:
        answer = sts.call_once(_IDENTITY)
    except TorchXError as err:  # a refusal has a date as well
        answer = getattr(err.__cause__, "response", None) or {}
    here_s = time.time()
    headers = (answer.get("ResponseMetadata") or {}).get("HTTPHeaders") or {}
    return clock_finding(parse_http_date(str(headers.get("date"))), here_s, "AWS", _SIGNED)
