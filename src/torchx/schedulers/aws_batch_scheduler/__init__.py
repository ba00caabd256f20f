"""Runs apps as jobs of AWS Batch: the scheduler ``aws_batch``."""

from torchx.schedulers.ids import make_unique
from torchx.settings import ENV_TORCHX_ROLE_IDX, ENV_TORCHX_ROLE_NAME

from ._compat import (
    AWSBatchOpts,
    _job_ui_url,
    _local_session,
    _parse_num_replicas,
    _parse_start_and_end_idx,
    _role_to_node_properties,
    to_datetime,
    to_millis_since_epoch,
)
from ._options import Opts, parse_ulimits
from ._records import DEFAULT_ROLE_NAME, JOB_STATE
from ._request import BatchJob
from ._resources import (
    ResourceType,
    resource_from_resource_requirements,
    resource_requirements_from_resource,
)
from ._scheduler import AWSBatchScheduler, create_scheduler
from ._tags import TAG_TORCHX_APPNAME, TAG_TORCHX_USER, TAG_TORCHX_VER

__all__ = [
    "DEFAULT_ROLE_NAME",
    "ENV_TORCHX_ROLE_IDX",
    "ENV_TORCHX_ROLE_NAME",
    "JOB_STATE",
    "TAG_TORCHX_APPNAME",
    "TAG_TORCHX_USER",
    "TAG_TORCHX_VER",
    "AWSBatchOpts",
    "AWSBatchScheduler",
    "BatchJob",
    "Opts",
    "ResourceType",
    "_job_ui_url",
    "_local_session",
    "_parse_num_replicas",
    "_parse_start_and_end_idx",
    "_role_to_node_properties",
    "create_scheduler",
    "make_unique",
    "parse_ulimits",
    "resource_from_resource_requirements",
    "resource_requirements_from_resource",
    "to_datetime",
    "to_millis_since_epoch",
]
