"""Requests log-ins to ECR, the registry of AWS, if none is configured."""

import base64
import binascii
import re

from torchx._startup.lazy_logger import get_logger
from torchx.errors import NotInstalled, UnexpectedReply

# https://docs.aws.amazon.com/AmazonECR/latest/userguide/Registries.html, for all partitions
_HOST = re.compile(
    r"\d{12}\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9][a-z0-9-]*)\."
    r"(?:amazonaws\.(?:com(?:\.cn)?|eu)|on\.(?:aws|amazonwebservices\.(?:com\.cn|eu))"
    r"|sc2s\.sgov\.gov|c2s\.ic\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)"
)

logger = get_logger(__name__)


def region_of(host: str) -> str | None:
    """Returns the region of a private registry in ECR; ``None`` for any other host.

    >>> region_of("123456789012.dkr.ecr.us-east-1.amazonaws.com")
    'us-east-1'
    >>> region_of("example.com")
    """
    found = _HOST.fullmatch(host)
    return found["region"] if found else None


def request_login(host: str, region: str) -> tuple[str, str]:
    """Returns name and password for a registry, valid for twelve hours.

    Raises:
        NotInstalled: without boto3.
        TorchXError: if AWS refuses, with its message.
    """
    from torchx._aws.session import AwsService

    logger.debug("requesting a log-in to `%s` from AWS", host)
    try:
        answer = AwsService("ecr", region=region).call("get_authorization_token")
    except NotInstalled as err:
        msg = f"no log-in to `{host}` is configured: run `docker login`, or let TorchX ask AWS"
        raise NotInstalled(msg, name=err.name, extra="aws") from err
    try:
        token = str(answer["authorizationData"][0]["authorizationToken"])
        name, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
    except (KeyError, IndexError, binascii.Error, UnicodeDecodeError):
        name = colon = password = ""
    if not colon:
        raise UnexpectedReply("ecr:GetAuthorizationToken", "an answer without a token")
    return name, password
