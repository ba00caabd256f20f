"""Runs apps as batch jobs of a Slurm cluster: the scheduler ``slurm``."""

import subprocess

from ._compat import (
    SBATCH_GROUP_OPTIONS,
    SBATCH_JOB_OPTIONS,
    _partition_memmb,
    _should_use_gpus_per_node_from_version,
    version,
)
from ._macros import quote_macros as _apply_app_id_env
from ._notes import SLURM_JOB_DIRS
from ._notes import get_job_dirs as _get_job_dirs
from ._notes import save_job_dir as _save_job_dir
from ._options import SlurmOpts
from ._request import SlurmBatchRequest, SlurmReplicaRequest
from ._scheduler import SlurmScheduler, create_scheduler
from ._states import SLURM_STATES, appstate_from_slurm_state, get_appstate_from_job

__all__ = [
    "SBATCH_GROUP_OPTIONS",
    "SBATCH_JOB_OPTIONS",
    "SLURM_JOB_DIRS",
    "SLURM_STATES",
    "SlurmBatchRequest",
    "SlurmOpts",
    "SlurmReplicaRequest",
    "SlurmScheduler",
    "_apply_app_id_env",
    "_get_job_dirs",
    "_partition_memmb",
    "_save_job_dir",
    "_should_use_gpus_per_node_from_version",
    "appstate_from_slurm_state",
    "create_scheduler",
    "get_appstate_from_job",
    "subprocess",
    "version",
]
