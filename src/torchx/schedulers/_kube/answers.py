"""Parses responses of the server: objects, or errors with a message for the user."""

from collections.abc import Mapping
from typing import Any

from .calls import Answer, Call
from .errors import (
    AlreadyExists,
    AnswerLost,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    MissingKind,
    NotFound,
    Rejected,
    ServerBusy,
    Unauthorized,
)


def document(call: Call, answer: Answer, user: str = "") -> dict[str, Any]:
    """Returns the object in a response.

    Args:
        user: the name of the kubeconfig's user, for messages.

    Raises:
        ApiError: the matching subclass, if the server returned an error.
        AnswerLost: if it is not an object; part of it may have been lost on the way.
    """
    try:
        found = answer.json()
    except ValueError:
        found = None
    is_json = "json" in answer.headers.get("content-type", "")
    if answer.code >= 400 and not (is_json and found is None):
        raise api_error(call, answer, user)
    if not isinstance(found, dict):
        beginning = " ".join(answer.body[:100].decode(errors="replace").split())
        msg = f"the answer to `{call}` is truncated, or not from an API server: `{beginning}`"
        raise AnswerLost(msg)
    return found


def api_error(call: Call, answer: Answer, user: str = "") -> ApiError:
    """Returns the error for a response with status 400 or higher."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    is_status = isinstance(found, dict) and found.get("kind") == "Status"
    status: Mapping[str, Any] = found if is_status and isinstance(found, dict) else {}
    words = " ".join(str(status.get("message") or answer.body.decode(errors="replace")).split())
    return _classify(call, answer, status, words[:2000] or "no reason given", user)


def status_error(call: Call, status: Mapping[str, Any]) -> ApiError:
    """Returns the error for a ``Status`` received inside a stream."""
    words = " ".join(str(status.get("message") or "no reason given").split())
    code = status.get("code")
    answer = Answer(code if isinstance(code, int) else 500, {}, b"")
    return _classify(call, answer, status, words, "")


def _classify(
    call: Call, answer: Answer, status: Mapping[str, Any], words: str, user: str
) -> ApiError:
    code, reason = answer.code, status.get("reason")
    if code == 401:
        who = f" of user `{user}`" if user else ""
        msg = f"the API server does not accept the credentials{who}: {words}"
        return Unauthorized(f"{msg}; they may be expired: log in again", code, status)
    if code == 403:
        return _forbidden(call, status, words)
    if code == 404:
        return _not_found(call, status, words)
    if code == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
        return kind(f"cannot {call}: {words}", code, status)
    if code == 410:
        return Expired(f"cannot {call}: {words}", code, status)
    if code in (400, 413, 415, 422):
        return Rejected(f"the API server rejects the request to {call}: {words}", code, status)
    if code == 429 or code >= 500:
        pause_s = _retry_after_s(answer, status)
        return ServerBusy(f"cannot {call} now: {words} (HTTP {code})", code, status, pause_s)
    return ApiError(f"cannot {call}: {words} (HTTP {code})", code, status)


def _forbidden(call: Call, status: Mapping[str, Any], words: str) -> ApiError:
    if "admission webhook" in words:
        return Rejected(f"the cluster refuses to {call}: {words}", 403, status)
    if "exceeded quota" in words or "is forbidden: violates" in words or "LimitRange" in words:
        return Forbidden(f"the cluster does not allow to {call}: {words}", 403, status)
    msg = f"you are not allowed to {call}: {words}"
    role = f"verb `{call.verb}` on `{call.what}`"
    return Forbidden(f"{msg}; ask for a role with the {role}", 403, status)


def _not_found(call: Call, status: Mapping[str, Any], words: str) -> ApiError:
    if not status or not (status.get("details") or {}).get("name"):
        msg = f"the cluster has no {call.what}: its API group or version is not installed"
        return MissingKind(f"{msg} (cannot {call})", 404, status)
    return NotFound(f"cannot {call}: {words}", 404, status)


def _retry_after_s(answer: Answer, status: Mapping[str, Any]) -> float | None:
    said = answer.headers.get("retry-after") or (status.get("details") or {}).get(
        "retryAfterSeconds"
    )
    try:
        return max(0.0, float(said)) if said is not None else None
    except (TypeError, ValueError):
        return None  # a date: the usual pauses are used
