"""Tracking: what a job notes down about itself, for people and later jobs to look at.

In the job:

    from torchx.tracker import app_run_from_env

    run = app_run_from_env()
    run.add_metadata(lr=0.1)
    run.add_artifact("model", "/shared/model.pt", {"epoch": 3})
    run.add_source("slurm://torchx/prep-x1", "dataset")

Which backends that goes to is configured where the job is launched, in ``.torchxconfig`` or by
``TORCHX_TRACKERS``; the launcher passes it on. A job that was launched without writes nowhere.
"""

from torchx.tracker.api import AppRun


def app_run_from_env() -> AppRun:
    """The run of this process, as the launcher has described it: ``AppRun.run_from_env()``."""
    return AppRun.run_from_env()


__all__ = ["AppRun", "app_run_from_env"]
