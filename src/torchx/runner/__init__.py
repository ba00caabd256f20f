"""Runs, watches and ends apps on schedulers."""

from torchx.runner.api import Runner, get_runner

__all__ = ["Runner", "get_runner"]
