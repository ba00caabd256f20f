"""Tests that are left out unless told: those that use what may be someone else's, or is missing,
and those that repeat for minutes, in other forms, what shorter ones have tested.

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
    "aws": Need(
        "moto's server",
        "scripts/engines/docker image; scripts/engines/aws install && scripts/engines/aws up",
    ),
    "kubernetes": Need("a Kubernetes cluster", "export TORCHX_TEST_KUBECONFIG=<its kubeconfig>"),
    "torch": Need("PyTorch", "pip install torch", "torch"),
    "thorough": Need("some minutes more", "nothing else"),
    "mlflow": Need("MLflow", "pip install 'torchx[mlflow]'", "mlflow"),
}
ENGINES = ("docker", "registry", "slurm", "aws", "kubernetes")
SERIAL = ("slurm", "torch")
"""Markers whose tests run one after the other.

Those of Slurm fill a cluster and stop its daemons. Jobs of PyTorch keep all cores busy, share a
port, and give up on ranks that are late.
"""


def named_in(expression: str) -> frozenset[str]:
    """Markers that an expression of ``-m`` names, be it to leave them out."""
    return frozenset(re.findall(r"\w+", expression)) & NEEDS.keys()


def untold(markers: set[str], told: frozenset[str]) -> tuple[str, ...]:
    """What a test with these markers needs, if some of it was not told; else nothing."""
    needs = [n for n, need in NEEDS.items() if n in markers and not _installed(need)]
    return () if told.issuperset(needs) else tuple(needs)


def describe(needs: tuple[str, ...], count: int) -> str:
    """The closing line for tests that were left out for the same needs."""
    what = " and ".join(NEEDS[name].what for name in needs)
    get = "; ".join(NEEDS[name].get for name in needs)
    run = f"python -m pytest -m {shlex.quote(' or '.join(needs))}"
    return f"{count} {'test needs' if count == 1 else 'tests need'} {what}: {get}; {run}"


class LeftOut:
    """Leaves tests out, and tells of them at the end; pytest-xdist's workers count for it."""

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
            needs = untold({mark.name for mark in item.iter_markers()}, self._told)
            self._counts[needs] += 1
            (gone if needs else kept).append(item)
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
        for needs, count in sorted(self._counts.items()):
            terminalreporter.line(describe(needs, count))
        if any(name in ENGINES for needs in self._counts for name in needs):
            terminalreporter.line("A daemon, registry or cluster is used only if -m names it.")


def _installed(need: Need) -> bool:
    return need.module is not None and importlib.util.find_spec(need.module) is not None
