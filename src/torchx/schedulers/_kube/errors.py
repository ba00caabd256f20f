"""Errors of the Kubernetes client, each with one line for the user."""

from collections.abc import Mapping
from typing import Any

from torchx.errors import BackendUnavailable, InvalidInput, TorchXError, UnsupportedRequest


class ConfigError(InvalidInput):
    """The kubeconfig, or the account of the pod, cannot be used as it is."""


class NoCluster(ConfigError, BackendUnavailable):
    """Nothing tells which cluster to talk to."""


class PluginFailed(ConfigError, BackendUnavailable):
    """The program that a kubeconfig names for credentials gave none."""


class NotSent(BackendUnavailable):
    """The request never reached the server, so any request may be sent again."""


class AnswerLost(BackendUnavailable):
    """The connection broke or timed out after the request may have been carried out."""


class Untrusted(BackendUnavailable):
    """The server's certificate is expired, for another name or by another authority."""


class ApiError(TorchXError):
    """The server answered with an error.

    Args:
        code: HTTP status.
        status: the ``Status`` object of the answer; empty if there was none.
    """

    def __init__(self, message: str, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.status = status

    @property
    def reason(self) -> str:
        """The server's machine-readable word, for instance ``AlreadyExists``."""
        return str(self.status.get("reason") or "")


class NotFound(ApiError):
    """The object, or its namespace, does not exist."""


class MissingKind(ApiError, UnsupportedRequest):
    """The cluster does not know this kind of object: its operator is not installed."""


class AlreadyExists(ApiError):
    """Another object has this name."""


class Conflict(ApiError):
    """The object changed meanwhile; read it again."""


class Expired(ApiError):
    """The resource version, or the place in a list, is too old: list again."""


class Forbidden(ApiError, PermissionError):
    """The user may not do this."""


class Unauthorized(ApiError, PermissionError):
    """The server does not accept the credentials."""


class Rejected(ApiError, InvalidInput):
    """The object is wrong as it was sent."""


class ServerBusy(ApiError, BackendUnavailable):
    """The server cannot answer now; the same request may succeed later.

    Args:
        retry_after_s: the pause that the server asks for.
    """

    def __init__(
        self, message: str, code: int, status: Mapping[str, Any], retry_after_s: float | None
    ) -> None:
        super().__init__(message, code, status)
        self.retry_after_s = retry_after_s
