"""Runs apps as training jobs of Amazon SageMaker: the scheduler ``aws_sagemaker``."""

from torchx.schedulers.ids import make_unique

from ._compat import AWSSageMakerOpts
from ._options import Opts
from ._request import AWSSageMakerJob
from ._scheduler import AWSSageMakerScheduler, create_scheduler
from ._states import JOB_STATE

__all__ = [
    "JOB_STATE",
    "AWSSageMakerJob",
    "AWSSageMakerOpts",
    "AWSSageMakerScheduler",
    "Opts",
    "create_scheduler",
    "make_unique",
]
