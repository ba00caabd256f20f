"""Tests that are left out unless told: those that use what may be someone else's, or is missing.

A Docker daemon, a registry or a cluster is used only if ``-m`` names its marker, however it came to
be on this machine. The closing lines of pytest tell what was left out, and how to run it.
"""

import importlib.util
import re
import shlex
from collections import Counter
from typing import Any, NamedTuple

import pytest


class Need(NamedTuple):
    """What the tests of a marker need."""

    what: str
    get: str
    """The command that brings it to this machine."""
    module: str | None = None
    """Needs no telling where this module is installed."""


NEEDS = {
    "docker": Need("a Docker daemon", "scripts/engines/docker up; scripts/engines/docker image"),
    "registry": Need("a registry", "scripts/engines/docker registry"),
    "slurm": Need("a Slurm cluster", 'eval "$(scripts/engines/slurm up)"'),
    "torch": Need("PyTorch", "pip install torch", "torch"),
    "mlflow": Need("MLflow", "pip install mlflow", "mlflow"),
}
ENGINES = tuple(name for name, need in NEEDS.items() if need.module is None)
SERIAL = ("slurm",)
"""Markers whose tests run one by one: they fill the cluster's nodes and stop its daemons."""


def named_in(expression: str) -> frozenset[str]:
    """Markers that an expression of ``-m`` names, be it to leave them out.

    >>> sorted(named_in("docker or (slurm and not torch)"))
    ['docker', 'slurm', 'torch']
    """
    return frozenset(re.findall(r"\w+", expression)) & NEEDS.keys()


def missing_for(markers: set[str], told: frozenset[str]) -> tuple[str, ...]:
    """Markers for which a test that has these is left out."""
    return tuple(
        name
        for name, need in NEEDS.items()
        if name in markers and name not in told and not _installed(need)
    )


def describe(missing: tuple[str, ...], count: int) -> str:
    """The closing line for tests that were left out together."""
    needs = " and ".join(NEEDS[name].what for name in missing)
    get = "; ".join(NEEDS[name].get for name in missing)
    run = f"python -m pytest -m {shlex.quote(' or '.join(missing))}"
    return f"{count} {'test needs' if count == 1 else 'tests need'} {needs}: {get}; {run}"


class LeftOut:
    """Leaves tests out; counts them in the workers of pytest-xdist, and reports where all began."""

    def __init__(self, config: pytest.Config) -> None:
        self._told = named_in(config.option.markexpr)
        self._counts: Counter[tuple[str, ...]] = Counter()

    @pytest.hookimpl(trylast=True)  # what the command line deselects is not left out by us
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        gone = []
        kept = []
        for item in items:
            missing = missing_for({mark.name for mark in item.iter_markers()}, self._told)
            self._counts[missing] += 1
            (gone if missing else kept).append(item)
        del self._counts[()]
        items[:] = kept
        config.hook.pytest_deselected(items=gone)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_out"] = [[*entry] for entry in self._counts.items()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes the counts of a worker, which has collected the same as every other."""
        output = getattr(node, "workeroutput", {})  # one that crashed has none
        self._counts = Counter({tuple(key): n for key, n in output.get("left_out", ())})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._counts:
            return
        terminalreporter.section("left out")
        for missing, count in sorted(self._counts.items()):
            terminalreporter.line(describe(missing, count))
        if any(name in ENGINES for missing in self._counts for name in missing):
            terminalreporter.line("A daemon, registry or cluster is used only if -m names it.")


def _installed(need: Need) -> bool:
    return need.module is not None and importlib.util.find_spec(need.module) is not None
