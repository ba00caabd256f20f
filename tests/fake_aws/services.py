"""The services that the fake has. Each is made with all services that were made before it."""

from collections.abc import Callable, Sequence
from typing import Any

from .accounts import Ecr, Iam, Sts
from .batch import Batch
from .logs import Logs
from .s3 import S3
from .sagemaker import SageMaker

SERVICES: Sequence[Callable[[dict[str, Any]], Any]] = (
    Logs,
    Sts,
    Iam,
    Ecr,
    S3,
    SageMaker,
    Batch,
)
