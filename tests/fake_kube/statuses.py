"""Errors as the API server writes them."""

from typing import Any

from .http import Reply, json_reply


class ApiFailure(Exception):
    """An answer with a ``Status`` object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers or {}
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details or {},
            "code": code,
        }

    def reply(self) -> Reply:
        reply = json_reply(self.status, self.code)
        reply.headers |= self.headers
        return reply


def not_found(resource: str, name: str) -> ApiFailure:
    plural, _, group = resource.partition(".")
    details = {"name": name, "kind": plural, **({"group": group} if group else {})}
    return ApiFailure(404, "NotFound", f'{resource} "{name}" not found', details)


def already_exists(resource: str, name: str) -> ApiFailure:
    plural, _, group = resource.partition(".")
    details = {"name": name, "kind": plural, **({"group": group} if group else {})}
    return ApiFailure(409, "AlreadyExists", f'{resource} "{name}" already exists', details)


def conflict(resource: str, name: str) -> ApiFailure:
    message = (
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return ApiFailure(409, "Conflict", message, {"name": name, "kind": resource})


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> ApiFailure:
    return ApiFailure(410, "Expired", message)


def invalid(kind: str, name: str, causes: list[tuple[str, str]]) -> ApiFailure:
    """``causes`` are pairs of a field and what is wrong with it."""
    texts = [f"{field}: {message}" for field, message in causes]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = {
        "name": name,
        "kind": kind.partition(".")[0],
        "causes": [
            {"reason": message.partition(":")[0].replace(" ", ""), "message": m, "field": field}
            for (field, message), m in zip(causes, [m for _, m in causes], strict=True)
        ],
    }
    return ApiFailure(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def forbidden(verb: str, resource: str, namespace: str, user: str) -> ApiFailure:
    plural, _, group = resource.partition(".")
    message = (
        f'{resource} is forbidden: User "{user}" cannot {verb} resource "{plural}" '
        f'in API group "{group}" in the namespace "{namespace}"'
    )
    return ApiFailure(403, "Forbidden", message, {"kind": plural, "group": group})


def unauthorized() -> ApiFailure:
    return ApiFailure(401, "Unauthorized", "Unauthorized")
