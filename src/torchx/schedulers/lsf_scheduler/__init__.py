"""Runs apps with IBM LSF: a job array for each role, or one parallel job for the app."""

from ._options import LsfOpts
from ._request import Facts, LsfBsub, LsfJob
from ._scheduler import LsfScheduler, create_scheduler

Opts = LsfOpts

__all__ = [
    "Facts",
    "LsfBsub",
    "LsfJob",
    "LsfOpts",
    "LsfScheduler",
    "Opts",
    "create_scheduler",
]
