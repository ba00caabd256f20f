"""Explains an app: reads the output of its failed replica, and applies the tables of rules."""

from collections.abc import Sequence

from torchx.errors import TorchXError
from torchx.specs.api import NONE

from .cause_rules import COMMON_WORDS, OUTPUT_RULES
from .causes import Explanation, Rule, Rules, Trace, failed_replica
from .causes import explain as explain_snapshot
from .failures import telling_lines, with_causes
from .reading import LogReader
from .responses import DescribeAppResponse
from .snapshot import AppSnapshot, ReplicaSnapshot
from .tracebacks import place_of, raised_by

LAST_LINES = 10
"""Number of last lines of a failed replica used as evidence."""


def explain(snapshot: AppSnapshot, reader: LogReader | None, words: Sequence[Rule]) -> Explanation:
    """Explains the app's state.

    Args:
        reader: reader of its logs; ``None`` if there are none.
        words: the rules of its scheduler.
    """
    rules = Rules((*words, *COMMON_WORDS), OUTPUT_RULES)
    if failed_replica(snapshot) is None:
        return explain_snapshot(snapshot, rules)
    try:
        snapshot = with_causes(snapshot, reader)
        failed = failed_replica(snapshot)
        assert failed is not None  # their output cannot undo a failure
        lines = telling_lines(failed, reader, LAST_LINES) if reader is not None else []
    except TorchXError:  # logs that cannot be read explain nothing
        return explain_snapshot(snapshot, rules)
    trace = trace_of(failed, lines)
    return explain_snapshot(snapshot, rules, trace)


def trace_of(failed: ReplicaSnapshot, last_lines: Sequence[str]) -> Trace:
    """Reads the replica's error file, or the exception that it printed."""
    raised = raised_by(failed.error)
    if raised is None:
        return Trace(last_lines=last_lines)
    who = raised.replica
    if raised.rank is not None:
        who = f"{who} rank {raised.rank}".strip()
    place = place_of(raised.callstack)
    short = place.rpartition("/")[2]
    return Trace(f"{who}: {raised.exception}" if who else raised.exception, short, last_lines)


def from_response(found: DescribeAppResponse) -> AppSnapshot:
    """Builds a snapshot from the response of ``describe``, as far as possible."""
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
