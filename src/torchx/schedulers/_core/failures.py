"""Finds the failed replicas, with their exceptions and last lines."""

from torchx.specs.api import AppState

from .exits import exception_json, is_consequence, with_extra
from .reading import LogReader
from .responses import FailedReplica
from .snapshot import AppSnapshot, ReplicaKey, ReplicaSnapshot
from .tracebacks import Raised, in_words, raised_by, raised_in, rank_in

CAUSES_SEARCHED = 8
"""Number of failed replicas whose output is searched for a traceback."""
LAST_LINES_OF = 32
"""Number of failed replicas whose last lines are read."""


def failed_replicas(
    snapshot: AppSnapshot, reader: LogReader | None, max_lines: int
) -> list[FailedReplica]:
    """Returns the failed replicas, first failure first; none of a cancelled app."""
    if snapshot.cancelled:
        return []
    return [
        FailedReplica(
            role=replica.role,
            replica=replica.replica,
            attempt=replica.attempt,
            exit_code=replica.exit_code,
            reason=replica.ending,
            log_path=replica.log_path,
            last_lines=(
                telling_lines(replica, reader, max_lines)
                if reader is not None and i < LAST_LINES_OF
                else []
            ),
            error=in_words(replica.error),
        )
        for i, replica in enumerate(snapshot.failures)
    ]


def telling_lines(replica: ReplicaSnapshot, reader: LogReader, count: int) -> list[str]:
    """Returns the last lines of a replica, or those of its exception if others follow it."""
    lines = reader.last_lines(replica, count)
    raised = raised_by(replica.error)
    if raised is None or not raised.callstack:
        return lines
    if lines and raised.exception in lines[-1]:
        return lines
    return raised.callstack.rstrip().split("\n")[-count:]


def with_causes(snapshot: AppSnapshot, reader: LogReader | None) -> AppSnapshot:
    """Returns the snapshot with the exceptions that the first failed replicas printed.

    An error file with an exception is used; output is searched only without one, or if it only
    reports the loss of another process.
    """
    if reader is None or snapshot.fatal is None or snapshot.cancelled:
        return snapshot
    snapshot = snapshot.with_errors(_printed_errors(snapshot, reader))
    first = snapshot.failures[0]
    if first.error and is_consequence(first.error):
        elsewhere = _raised_elsewhere(snapshot, reader)
        if elsewhere is not None:
            return snapshot.with_errors({first.key: elsewhere})
    return snapshot


def _printed_errors(snapshot: AppSnapshot, reader: LogReader) -> dict[ReplicaKey, str]:
    """Returns exceptions printed by failed replicas, up to the first that is no consequence."""
    found: dict[ReplicaKey, str] = {}
    for replica in snapshot.failures[:CAUSES_SEARCHED]:
        error = replica.error or ""
        if "Traceback" in error:
            if is_consequence(error):
                continue
            if (ranked := _ranked(replica, reader)) is not None:
                found[replica.key] = ranked
            break
        if replica.exit_code is not None and replica.exit_code < 0:
            continue  # a signal leaves no traceback, and an earlier one would mislead
        printed = _printed(replica, reader)
        if printed is not None:
            found[replica.key] = _error_json(replica, printed)
            if not is_consequence(printed.callstack):
                break
    return found


def _error_json(replica: ReplicaSnapshot, raised: Raised) -> str:
    code, ended_ns = replica.exit_code, replica.ended_ns
    return exception_json(raised.exception, raised.callstack, code, ended_ns, raised.rank)


def _raised_elsewhere(snapshot: AppSnapshot, reader: LogReader) -> str | None:
    """Returns the exception of a replica that has not ended yet, while others have noticed it.

    The worker of one node may fail before all, and the launcher of that node end last.
    """
    others = [r for r in snapshot.replicas if r.state in (AppState.RUNNING, AppState.CANCELLED)]
    for replica in others[:CAUSES_SEARCHED]:
        raised = raised_by(replica.error) or _printed(replica, reader)
        if raised is not None and not is_consequence(f"{raised.exception}{raised.callstack}"):
            error = _error_json(replica, raised)
            return with_extra(error, "replica", f"{replica.role}/{replica.replica}")
    return None


def _ranked(replica: ReplicaSnapshot, reader: LogReader) -> str | None:
    """Adds the rank to the error file of a torchrun worker, which lacks it."""
    recorded = raised_by(replica.error)
    if recorded is None or recorded.rank is not None:
        return None
    rank = _printed_rank(replica, reader, recorded.exception)
    return None if rank is None else with_extra(replica.error or "", "rank", rank)


def _printed(replica: ReplicaSnapshot, reader: LogReader) -> Raised | None:
    """Returns the exception at the end of a replica's output; ``None`` if there is none."""
    for text in reader.outputs(replica):
        found = raised_in(text)
        if found is not None:
            return found
    return None


def _printed_rank(replica: ReplicaSnapshot, reader: LogReader, exception: str) -> int | None:
    """Returns the rank that raised an exception, from the replica's output."""
    ranks = (rank_in(text, exception) for text in reader.outputs(replica))
    return next((rank for rank in ranks if rank is not None), None)
