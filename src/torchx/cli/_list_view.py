"""The table of apps as a terminal shows it."""

import time
from collections.abc import Sequence

from torchx._launches import launches
from torchx.cli._explained import overview
from torchx.cli._look import UNLIMITED, Look, age, duration
from torchx.cli._table import fitted
from torchx.runner import Runner
from torchx.schedulers.api import ListAppResponse
from torchx.specs import AppState

_HEADERS = ("APP", "STATE", "REPLICAS", "AGE", "TOOK", "NAME", "HANDLE")
_NARROW = 5
"""Columns of the usual table; ``wide`` has all."""
_NS = 1_000_000_000
_UP = (AppState.RUNNING, AppState.SUCCEEDED)


def list_text(
    runner: Runner, apps: Sequence[ListAppResponse], more: int, wide: bool = False
) -> str:
    """Rows for these apps.

    Args:
        more: how many apps there are that are not shown.
    """
    look = Look()
    now_s = time.time()
    launched = {launch.handle: float(launch.time_s) for launch in launches()}
    rows = [_row(look, runner, app, launched, now_s) for app in apps]
    headers = _HEADERS if wide else _HEADERS[:_NARROW]
    width = None if not wide else UNLIMITED
    lines = fitted(look, headers, [row[: len(headers)] for row in rows], (0,), width)
    if not apps:
        lines = [look.dim("no apps")]
    if more:
        lines += look.wrap(look.dim(f"and {more} more: torchx list --all"))
    return "\n".join(lines)


def _row(
    look: Look,
    runner: Runner,
    app: ListAppResponse,
    launched: dict[str, float],
    now_s: float,
) -> list[str]:
    began_s, ended_s = _times(app)
    made_s = app.created_ns / _NS if app.created_ns else began_s
    if made_s is None:
        made_s = launched.get(app.app_handle)
    took = ""
    if began_s is not None and ended_s is not None:
        took = duration(ended_s - began_s)
    return [
        app.app_id,
        look.state(app.state),
        _replicas(runner, app),
        "" if made_s is None else age(now_s - made_s),
        took,
        app.name,
        app.app_handle,
    ]


def _times(app: ListAppResponse) -> tuple[float | None, float | None]:
    """When it began and ended, in seconds since the epoch."""
    began, ended = app.times_ns or (None, None)
    return (int(began) / _NS if began else None), (int(ended) / _NS if ended else None)


def _replicas(runner: Runner, app: ListAppResponse) -> str:
    """How many of its replicas run or have succeeded, of how many."""
    if app.replicas is not None:
        return "/".join(map(str, app.replicas))
    if not app.app_handle.startswith("local_cwd:"):
        return ""
    found = overview(runner, app.app_handle)  # records of this machine, which take no request
    if found is None or not found.replicas:
        return ""
    up = sum(replica.state in _UP for replica in found.replicas)
    return f"{up}/{len(found.replicas)}"
