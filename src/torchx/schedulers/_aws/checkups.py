"""Checks for jobs on AWS: boto3, credentials, region and policy."""

import importlib.util
from collections.abc import Callable

from torchx.errors import BackendUnavailable
from torchx.schedulers._core.checkups import Checkup, Finding, broken, neutral

from .errors import AwsRefused, NoCredentials, NoRegion


def checkups_of(name: str, ask: Callable[[], Finding]) -> list[Checkup]:
    """Returns a check by one query to AWS; without boto3, a check of the package alone.

    Args:
        ask: sends the query, which also checks credentials, region and policy: errors are findings.
    """
    if importlib.util.find_spec("boto3") is None:
        missing = neutral("not set up: the package `boto3` is missing", "pip install 'torchx[aws]'")
        return [Checkup("package", lambda: missing)]
    return [Checkup(name, lambda: _answer(ask))]


def _answer(ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except NoCredentials as err:
        if err.code:  # they exist, but AWS does not accept them
            return broken(str(err), "aws sso login")
        return neutral(f"not set up: {err}", "aws configure")
    except NoRegion as err:
        return neutral(f"not set up: {err}", "aws configure")
    except (AwsRefused, BackendUnavailable) as err:
        return broken(str(err), "Check the region, the profile and your policy")
