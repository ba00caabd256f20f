"""Applies an overlay of 10,000 keys, wide and deep."""

import time
from typing import Any

from _shared import report

from torchx.specs.overlays import apply_overlay

WIDE = 5_000
DEEP = 100


def spec(value: int) -> dict[str, Any]:
    """10,000 keys: half of them side by side, half in chains of `DEEP` dicts."""
    made: dict[str, Any] = {f"wide{i}": value for i in range(WIDE)}
    for i in range(WIDE // DEEP):
        inner: dict[str, Any] = {"leaf": value}
        for level in range(DEEP - 1):
            inner = {f"level{level}": inner}
        made[f"deep{i}"] = inner
    return made


def main() -> None:
    overlay = spec(2)
    times = []
    for _ in range(3):
        base = spec(1)
        started = time.perf_counter()
        apply_overlay(base, overlay)
        times.append(time.perf_counter() - started)
        assert base == overlay
    report(seconds=min(times))


main()
