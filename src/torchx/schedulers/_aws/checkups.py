"""What all jobs on AWS need: boto3, credentials, a region, and a policy that allows it."""

import importlib.util
from collections.abc import Callable

from torchx._aws.errors import AwsRefused, NoCredentials, NoRegion
from torchx.errors import BackendUnavailable
from torchx.schedulers._core.checkups import Checkup, Finding, broken, neutral


def checkups_of(name: str, ask: Callable[[], Finding]) -> list[Checkup]:
    """One check that a question to AWS answers; one of the package alone without boto3.

    Args:
        ask: its answer tells of credentials, region and policy as well: errors are findings.
    """
    if importlib.util.find_spec("boto3") is None:
        missing = neutral("not set up: the package `boto3` is missing", "pip install 'torchx[aws]'")
        return [Checkup("package", lambda: missing)]
    return [Checkup(name, lambda: _answer(ask))]


def _answer(ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except NoCredentials as err:
        if err.code:  # there are some, and AWS does not accept them
            return broken(str(err), "aws sso login")
        return neutral(f"not set up: {err}", "aws configure")
    except NoRegion as err:
        return neutral(f"not set up: {err}", "aws configure")
    except (AwsRefused, BackendUnavailable) as err:
        return broken(str(err), "Check the region, the profile and your policy")
