"""Explains an app: reads what its failed replica printed, and applies the tables of rules."""

from collections.abc import Sequence

from torchx.errors import TorchXError
from torchx.specs.api import NONE

from .cause_rules import COMMON_WORDS, OUTPUT_RULES
from .causes import Explanation, Rule, Rules, Trace, failed_replica
from .causes import explain as explain_snapshot
from .responses import DescribeAppResponse
from .snapshot import AppSnapshot, ReplicaSnapshot
from .verbs import LogReader, with_causes

LAST_LINES = 10
"""How many of a failed replica's last lines are evidence."""


def explain(snapshot: AppSnapshot, reader: LogReader | None, words: Sequence[Rule]) -> Explanation:
    """Why the app is in its state.

    Args:
        reader: of its logs; ``None`` if there are none.
        words: the rules of its scheduler.
    """
    rules = Rules((*words, *COMMON_WORDS), OUTPUT_RULES)
    if failed_replica(snapshot) is None:
        return explain_snapshot(snapshot, rules)
    try:
        snapshot = with_causes(snapshot, reader)
        failed = failed_replica(snapshot)
        assert failed is not None  # what they printed takes no failure back
        lines = reader.last_lines(failed, LAST_LINES) if reader is not None else []
    except TorchXError:  # logs that cannot be read explain nothing
        return explain_snapshot(snapshot, rules)
    trace = trace_of(failed, lines)
    return explain_snapshot(snapshot, rules, trace)


def trace_of(failed: ReplicaSnapshot, last_lines: Sequence[str]) -> Trace:
    """What the replica's error file, or the exception that it printed, tells."""
    exception, callstack = _exception_in(failed.error or "")
    own = [line.rstrip() for line in callstack.split("\n") if line.strip()]
    # the end of the traceback says more than what comes after it, such as torchrun's report
    return Trace(exception, _place_in(callstack), own[-LAST_LINES:] or last_lines)


def _exception_in(error: str) -> tuple[str, str]:
    """The exception's own line, and its callstack; empty for an error without an exception."""
    import json

    try:
        message = json.loads(error)["message"]
        text = str(message["message"])
        callstack = str(message["extraInfo"]["py_callstack"])
    except (ValueError, KeyError, TypeError):
        return "", ""
    lines = [line for line in text.strip().split("\n") if line.strip()]
    return (lines[-1].strip() if lines else ""), callstack


def _place_in(callstack: str) -> str:
    """The innermost place of a callstack that is not in an installed package, in short.

    >>> _place_in('  File "/app/train.py", line 41, in step')
    'train.py:41 in step'
    """
    import re

    found = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', callstack)
    own = [place for place in found if "/site-packages/" not in place[0]] or found
    if not own:
        return ""
    path, line, name = own[-1]
    return f"{path.rpartition('/')[2]}:{line} in {name}"


def from_response(found: DescribeAppResponse) -> AppSnapshot:
    """As much of a snapshot as the answer of ``describe`` holds."""
    replicas = tuple(
        ReplicaSnapshot(
            status.role,
            status.id,
            status.state,
            host=status.hostname,
            error=None if status.structured_error_msg == NONE else status.structured_error_msg,
        )
        for role in found.roles_statuses
        for status in role.replicas
    )
    return AppSnapshot(
        app_id=found.app_id,
        replicas=replicas,
        roles=tuple(found.roles),
        native_state=found.state,
        message="" if found.msg in ("", NONE) else found.msg,
        restarts=found.num_restarts,
        ui_url=found.ui_url,
    )
