"""Errors of the Kubernetes client, each with one line for the user."""

from collections.abc import Mapping
from typing import Any

from torchx.errors import BackendUnavailable, InvalidInput, TorchXError, UnsupportedRequest


class ConfigError(InvalidInput):
    """The kubeconfig, or the account of the pod, cannot be used as it is."""


class NoCluster(ConfigError, BackendUnavailable):
    """No cluster is configured."""


class PluginFailed(ConfigError, BackendUnavailable):
    """The credential plugin of a kubeconfig failed."""


class NotSent(BackendUnavailable):
    """The request never reached the server, so that it may be retried."""


class AnswerLost(BackendUnavailable):
    """The connection broke or timed out; the request may have been executed."""


class Untrusted(BackendUnavailable):
    """The server's certificate is expired, for another name or by another authority."""


class ApiError(TorchXError):
    """The server answered with an error.

    Args:
        code: HTTP status.
        status: the ``Status`` object of the response; empty if there was none.
    """

    def __init__(self, message: str, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.status = status

    @property
    def reason(self) -> str:
        """The server's machine-readable reason, for instance ``AlreadyExists``."""
        return str(self.status.get("reason") or "")


class NotFound(ApiError):
    """The object, or its namespace, does not exist."""


class MissingKind(ApiError, UnsupportedRequest):
    """The cluster does not know this kind of object: its operator is not installed."""


class AlreadyExists(ApiError):
    """Another object has this name."""


class Conflict(ApiError):
    """The object was changed meanwhile; read it again."""


class Expired(ApiError):
    """The resource version, or the position in a list, has expired: list again."""


class Forbidden(ApiError, PermissionError):
    """The user may not do this."""


class Unauthorized(ApiError, PermissionError):
    """The server does not accept the credentials."""


class Rejected(ApiError, InvalidInput):
    """The sent object is invalid."""


class ServerBusy(ApiError, BackendUnavailable):
    """The server is busy; a retry may succeed.

    Args:
        retry_after_s: the pause in seconds that the server requests.
    """

    def __init__(
        self, message: str, code: int, status: Mapping[str, Any], retry_after_s: float | None
    ) -> None:
        super().__init__(message, code, status)
        self.retry_after_s = retry_after_s
