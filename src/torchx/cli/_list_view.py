"""Formats the table of apps for a terminal."""

import time
from collections.abc import Sequence

from torchx._launches import launches
from torchx.cli._explained import overview
from torchx.cli._look import UNLIMITED, Look, age, duration
from torchx.cli._status_view import app_took
from torchx.cli._table import fitted
from torchx.runner import Runner
from torchx.schedulers.api import ListAppResponse
from torchx.specs import AppState

_HEADERS = ("APP", "STATE", "REPLICAS", "AGE", "TOOK", "NAME", "HANDLE")
_NARROW = 5
"""Columns of the default table; ``wide`` has all."""
_NS = 1_000_000_000
_UP = (AppState.RUNNING, AppState.SUCCEEDED)


def list_text(
    runner: Runner, apps: Sequence[ListAppResponse], more: int, wide: bool = False
) -> str:
    """Returns the table of these apps.

    Args:
        more: number of apps that are not shown.
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
    made_s = app.created_ns / _NS if app.created_ns else launched.get(app.app_handle)
    replicas, took = _of_row(app)
    if not replicas and app.app_handle.startswith("local_cwd:"):
        found = overview(runner, app.app_handle)  # records of this machine, which need no query
        if found is not None and found.replicas:
            up = sum(replica.state in _UP for replica in found.replicas)
            replicas, took = f"{up}/{len(found.replicas)}", app_took(found)
    return [
        app.app_id,
        look.state(app.state),
        replicas,
        "" if made_s is None else age(now_s - made_s),
        took,
        app.name,
        app.app_handle,
    ]


def _of_row(app: ListAppResponse) -> tuple[str, str]:
    """Returns the ratio of replicas that run or have succeeded, and the app's duration."""
    began, ended = app.times_ns or (0, 0)
    took = duration((ended - began) / _NS) if began and ended else ""
    return "/".join(map(str, app.replicas or ())), took
