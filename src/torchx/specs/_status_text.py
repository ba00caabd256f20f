"""Text forms of an app's status."""

import json
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torchx.specs._constants import NONE
from torchx.specs._state import AppState

if TYPE_CHECKING:
    from torchx.specs._status import AppStatus, ReplicaStatus

_NOT_AVAILABLE = "<N/A>"
_HEADER = "    error_msg: "


def dump_status(status: "AppStatus") -> str:
    """Returns the status as YAML."""
    import yaml

    data = _plain(asdict(status))
    if status.structured_error_msg != NONE:
        try:
            data["structured_error_msg"] = json.loads(status.structured_error_msg)
        except ValueError:
            pass  # it is not JSON: shown as it is
    return str(yaml.safe_dump({"AppStatus": data}))


def _plain(value: Any) -> Any:
    if isinstance(value, AppState):
        return repr(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value


def format_status(status: "AppStatus", filter_roles: list[str] | None = None) -> str:
    """Returns the status as text for people."""
    blocks = "".join(
        _format_replica(replica)
        for role in status.filtered(filter_roles)
        for replica in sorted(role.replicas, key=lambda r: r.id)
    )
    return (
        "AppStatus:\n"
        f"    State: {status.state}\n"
        f"    Num Restarts: {status.num_restarts}\n"
        f"    Roles: {blocks}\n"
        f"    Msg: {status.msg}\n"
        f"    Structured Error Msg: {status.structured_error_msg}\n"
        f"    UI URL: {status.ui_url}\n"
        "    "
    )


def _format_replica(replica: "ReplicaStatus") -> str:
    mark = "*" if replica.id == 0 else " "
    return f"\n {mark}{replica.role}[{replica.id}]:{_format_detail(replica)}"


def _format_detail(replica: "ReplicaStatus") -> str:
    error = replica.structured_error_msg
    if error == NONE:
        ended_badly = replica.state in (AppState.FAILED, AppState.CANCELLED)
        return f"{replica.state} (no reply file)" if ended_badly else str(replica.state)
    parsed = _parse_error(error)
    if parsed is None:
        return error
    text, code, timestamp = parsed
    lines = [
        f"{replica.state} (exitcode: {code or _NOT_AVAILABLE})",
        f"    timestamp: {_format_time(timestamp)}",
        f"    hostname: {replica.hostname}",
        wrap_error(text, _HEADER),
    ]
    return "\n    ".join("\n".join(lines).split("\n"))


def _parse_error(error: str) -> tuple[str, Any, Any] | None:
    """Returns text, exit code and timestamp of an error of a known format; ``None`` for others."""
    try:
        data = json.loads(error)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    message = data.get("message")
    if isinstance(message, str):
        return message, data.get("errorCode"), data.get("timestamp")
    if isinstance(message, dict) and isinstance(message.get("message"), str):
        extra = message.get("extraInfo")
        timestamp = extra.get("timestamp") if isinstance(extra, dict) else None
        return message["message"], message.get("errorCode"), timestamp
    return None


def _format_time(timestamp: Any) -> str:
    try:
        return datetime.fromtimestamp(int(timestamp)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError, OverflowError, OSError):
        return _NOT_AVAILABLE


def wrap_error(msg: str, header: str, width: int = 80) -> str:
    """Returns the essential part of an error's text, wrapped."""
    assert len(header) < width, (
        f"header {header!r} (len {len(header)}) must be shorter than width {width}"
    )
    msg = _worker_error(msg) or msg
    lines = msg.split("\n")
    for line, following in pairwise(lines):
        if following.startswith("Exception"):
            msg = line
            break
    return header + f"\n{' ' * len(header)}".join(_wrap(msg, width))


def _worker_error(msg: str) -> str | None:
    """Returns the part ``Word('On WorkerInfo(...):⏎...⏎')``; a regex would be slow."""
    mark = "('On WorkerInfo("
    start = at = msg.find(mark)
    begin = msg.find("):\n", at + len(mark))
    end = msg.rfind("\n')")
    if at < 0 or begin < 0 or end < begin + len("):\n"):
        return None
    while start and (msg[start - 1].isalnum() or msg[start - 1] == "_"):
        start -= 1
    return msg[start : end + len("\n')")] if start < at else None


def _wrap(text: str, width: int) -> list[str]:
    """Breaks at spaces, each piece as soon as it has ``width`` characters."""
    pieces = []
    start = 0
    while (end := text.find(" ", start + width)) >= 0:
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]
