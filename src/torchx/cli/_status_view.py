"""Formats the status of an app for a terminal."""

import time

from torchx.cli._explained import app_name, commands, explained, overview, place_of
from torchx.cli._look import Look, duration, printed_width
from torchx.cli._table import fitted
from torchx.runner import Runner
from torchx.schedulers.api import AppSnapshot, ReplicaSnapshot
from torchx.specs import NONE, AppState, AppStatus, ReplicaStatus, is_terminal, parse_app_handle

_MOST_REPLICAS = 64
"""Most replicas listed, failed ones first; the rest is counted."""
_NS = 1_000_000_000


def status_text(
    runner: Runner, handle: str, status: AppStatus, roles: list[str] | None = None
) -> str:
    """Returns state, cause, and a table of the replicas."""
    look = Look()
    seen = overview(runner, handle)
    replicas = [r for role in status.filtered(roles) for r in sorted(role.replicas, key=_index)]
    lines = _head(look, handle, status, seen, len(replicas))
    found = explained(runner, handle, status.state)
    if found is not None:
        lines += look.wrap(f"  {look.bold(found.cause.value)}: {found.summary}", "  ")
        place = place_of(found)
        if place:
            lines.append(f"  {look.dim(f'at {place}')}")
    elif status.msg not in ("", NONE, status.state.name):
        lines += look.wrap(f"  {status.msg}", "  ")
    if replicas:
        lines += ["", *_table(look, replicas, seen)]
    if status.ui_url:
        lines += ["", look.dim(status.ui_url)]
    if found is not None:
        lines += [line for text in commands(handle, found)[:1] for line in look.hint(text)]
    return "\n".join(lines)


def _index(replica: ReplicaStatus) -> int:
    return replica.id


def _head(
    look: Look, handle: str, status: AppStatus, seen: AppSnapshot | None, replicas: int
) -> list[str]:
    scheduler = parse_app_handle(handle).scheduler_backend
    parts = [scheduler, f"{replicas} replica{'s' if replicas != 1 else ''}"]
    if status.num_restarts > 0:
        parts.append(f"{status.num_restarts} restart{'s' if status.num_restarts != 1 else ''}")
    state = look.state(status.state)
    took = app_took(seen)
    if took:
        state += f" {'after' if is_terminal(status.state) else 'for'} {took}"
    details = look.dim(" · ".join(parts) if look.sign("bar") == "│" else ", ".join(parts))
    head = f"{look.mark(status.state)} {look.bold(app_name(handle))} {state}"
    if printed_width(f"{head} {details}") <= look.width:
        return [f"{head} {details}"]
    return [*look.wrap(head, "  "), *look.wrap(f"  {details}", "  ")]


def app_took(seen: AppSnapshot | None) -> str:
    """Returns how long an app has run; empty if that is not known."""
    starts = [r.started_ns for r in seen.replicas if r.started_ns] if seen is not None else []
    if seen is None or not starts:
        return ""
    ends = [r.ended_ns for r in seen.replicas if r.ended_ns]
    if seen.terminal and not ends:
        return ""
    end = max(ends) if seen.terminal else time.time_ns()
    return duration((end - min(starts)) / _NS)


def _table(look: Look, replicas: list[ReplicaStatus], seen: AppSnapshot | None) -> list[str]:
    ranked = sorted(replicas, key=lambda r: r.state is not AppState.FAILED)
    shown = ranked[:_MOST_REPLICAS] if len(replicas) > _MOST_REPLICAS else replicas
    headers = ["REPLICA", "STATE", "ATTEMPT", "TOOK", "HOST", "WHY"]
    rows = [_row(look, replica, seen) for replica in shown]
    lines = fitted(look, headers, rows, flexible=(5, 4))
    if len(shown) < len(replicas):
        counts: dict[str, int] = {}
        for replica in ranked[_MOST_REPLICAS:]:
            counts[replica.state.name] = counts.get(replica.state.name, 0) + 1
        lines.append(look.dim("and " + ", ".join(f"{n} {name}" for name, n in counts.items())))
    return lines


def _row(look: Look, replica: ReplicaStatus, seen: AppSnapshot | None) -> list[str]:
    known = seen.find((replica.role, replica.id)) if seen is not None else None
    waits = replica.state in (AppState.PENDING, AppState.SUBMITTED)
    host = "" if replica.hostname == NONE or waits else replica.hostname  # planned names are long
    cells = [f"{replica.role}/{replica.id}", look.state(replica.state)]
    if known is None:
        return [*cells, "", "", host, ""]
    attempt = str(known.attempt) if known.attempt else ""
    return [*cells, attempt, _took(known), host, _why(known)]


def _took(replica: ReplicaSnapshot) -> str:
    if not replica.started_ns:
        return ""
    if replica.ended_ns is None and replica.state is not AppState.RUNNING:
        return ""
    return duration(((replica.ended_ns or time.time_ns()) - replica.started_ns) / _NS)


def _why(replica: ReplicaSnapshot) -> str:
    if replica.state is AppState.FAILED:
        return replica.ending
    return replica.reason if replica.state is AppState.PENDING else ""
