"""Tracking: jobs record metadata, artifacts and sources, for people and later jobs to read.

In the job:

    from torchx.tracker import app_run_from_env

    run = app_run_from_env()
    run.add_metadata(lr=0.1)
    run.add_artifact("model", "/shared/model.pt", {"epoch": 3})
    run.add_source("slurm://torchx/prep-x1", "dataset")

The backends are configured where the job is launched, in ``.torchxconfig`` or by
``TORCHX_TRACKERS``; the launcher passes them on. A job launched without any records nothing.
"""

from torchx.tracker.api import AppRun


def app_run_from_env() -> AppRun:
    """Returns the run of this process, from the launcher's settings: ``AppRun.run_from_env()``."""
    return AppRun.run_from_env()


__all__ = ["AppRun", "app_run_from_env"]
