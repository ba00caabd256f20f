"""Runs apps on schedulers, watches and ends them."""

from torchx.runner.api import Runner, get_runner

__all__ = ["Runner", "get_runner"]
