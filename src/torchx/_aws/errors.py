"""Translates errors of AWS, keeping AWS's message and the id of the request."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchx.errors import BackendUnavailable, InvalidInput, TorchXError


class AwsRefused(InvalidInput):
    """AWS refused a request.

    Args:
        code: AWS's name of the error, such as ``ClientException``.
        request_id: identifies the request for AWS's support; empty if unknown.
    """

    def __init__(self, message: str, code: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.request_id = request_id


class NotThere(AwsRefused):
    """The requested object does not exist in that account and region."""


class NotAllowed(AwsRefused):
    """The credentials are valid, but do not allow the request."""


class NoCredentials(AwsRefused):
    """There are no credentials, or AWS does not accept them any more."""


class NoRegion(AwsRefused):
    """No region is configured."""


class Throttled(BackendUnavailable):
    """AWS throttles requests, also after retries."""


class AnswerLost(BackendUnavailable):
    """The response was lost: the request may or may not have been carried out."""


SIGN_IN = (
    "sign in (`aws sso login`, `aws configure`), set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give "
    "the option `profile`"
)
"""What to do without credentials."""
_NO_ACCESS = frozenset(
    ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized"]
)
_EXPIRED = frozenset(
    ["ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"]
)
_WRONG_CREDENTIALS = frozenset(
    [
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "InvalidAccessKeyId",
        "AuthFailure",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "InvalidToken",
    ]
)
_THROTTLED = frozenset(
    [
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "ProvisionedThroughputExceededException",
        "PriorRequestNotComplete",
        "TransactionInProgressException",
        "SlowDown",
    ]
)
_NOT_THERE = frozenset(
    ["ResourceNotFoundException", "ResourceNotFound", "NoSuchEntity", "NoSuchBucket", "NoSuchKey"]
)
_CREDENTIAL_ERRORS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "SSOError",
    "TokenRetrievalError",
    "NoAuthTokenError",
    "LoginError",
)
_UNREACHABLE = (
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "ProxyConnectionError",
    "SSLError",
)
_BAD_CONFIG = (
    "ProfileNotFound",
    "ConfigNotFound",
    "ConfigParseError",
    "InvalidRegionError",
    "ParamValidationError",
    "UnknownServiceError",
    "InvalidConfigError",
)


@contextmanager
def translate_errors(call: str) -> Iterator[None]:
    """Translates errors of boto3 into those of ``torchx.errors``; lets others pass.

    Args:
        call: service and operation, as ``batch:SubmitJob``, for messages.

    Raises:
        NoCredentials, NotAllowed, NotThere, AwsRefused: AWS refused the request.
        Throttled, AnswerLost, BackendUnavailable: the same call may succeed later.
    """
    try:
        yield
    except TorchXError:
        raise
    except Exception as err:
        found = translated(err, call)
        if found is None:
            raise
        raise found from err


def translated(err: Exception, call: str) -> TorchXError | None:
    """Translates an error of boto3; ``None`` for any other error.

    Errors are recognized by name: boto3 may not be installed, and a given client's errors may come
    from another copy of it.
    """
    names = {cls.__name__ for cls in type(err).__mro__}
    if "ClientError" in names:
        return _of_answer(err, call)
    if "ResponseParserError" in names:  # as of a proxy, or of a network that asks to log in
        return AnswerLost(f"the answer to `{call}` is not one of AWS: {_one_line(str(err))}")
    if "BotoCoreError" not in names:
        return None
    words = _one_line(str(err))
    if names.intersection(_CREDENTIAL_ERRORS):
        return NoCredentials(f"no credentials for AWS ({words}): {SIGN_IN}")
    if "NoRegionError" in names:
        return NoRegion(
            "no AWS region is set: give the option `region`, set AWS_REGION, or add one to the "
            "profile with `aws configure`"
        )
    if names.intersection(_BAD_CONFIG):
        return AwsRefused(f"`{call}` cannot be called: {words}")
    if names.intersection(_UNREACHABLE):
        return BackendUnavailable(f"`{call}` failed: {words}")
    if "HTTPClientError" in names:
        return AnswerLost(f"`{call}` got no answer: {words}")
    return AwsRefused(f"`{call}` failed: {words}")


def _of_answer(err: Exception, call: str) -> TorchXError:
    response: dict[str, Any] = getattr(err, "response", None) or {}
    error = response.get("Error") or {}
    about = response.get("ResponseMetadata") or {}
    code = str(error.get("Code") or "Unknown")
    request_id = str(about.get("RequestId") or "")
    status = int(about.get("HTTPStatusCode") or 0)
    said = _one_line(str(error.get("Message") or "")) or "no message"
    words = f"{said} ({code}, request id {request_id or 'unknown'})"
    if code in _THROTTLED or status == 429:
        return Throttled(f"`{call}`: AWS takes no more requests for now: {words}")
    if code in _EXPIRED:
        text = f"the credentials for AWS have expired: {words}; {SIGN_IN}"
        return NoCredentials(text, code, request_id)
    if code in _WRONG_CREDENTIALS:
        text = f"AWS does not accept the credentials: {words}; {SIGN_IN}"
        return NoCredentials(text, code, request_id)
    if status >= 500:
        return AnswerLost(f"`{call}` failed: {words}")
    kind = AwsRefused
    if code in _NO_ACCESS:
        kind = NotAllowed
    elif code in _NOT_THERE:
        kind = NotThere
    return kind(f"`{call}` was refused: {words}", code, request_id)


def _one_line(text: str) -> str:
    return " ".join(text.split())
