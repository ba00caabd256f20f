"""Names of the published package that clients import or replace."""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from torchx._aws.session import local_session
from torchx.specs.api import Role

from ._command import Place
from ._options import Opts
from ._records import parse_num_replicas, parse_start_and_end_idx
from ._request import container_properties, node_group
from ._resources import INSTANCE_TYPE
from ._states import job_ui_url

if TYPE_CHECKING:
    import boto3

AWSBatchOpts = Opts
"""Name of the options in release 0.7."""

_parse_num_replicas = parse_num_replicas
_parse_start_and_end_idx = parse_start_and_end_idx
_job_ui_url = job_ui_url


def to_millis_since_epoch(moment: datetime) -> int:
    """Converts to milliseconds since 1970; a naive time is local."""
    return round(moment.timestamp() * 1000)


def to_datetime(millis: int) -> datetime:
    """Converts to a time in UTC."""
    return datetime.fromtimestamp(millis / 1000, tz=timezone.utc)


def _local_session() -> "boto3.session.Session":
    """Returns this thread's boto3 session."""
    return local_session()


def _role_to_node_properties(
    role: Role,
    start_idx: int,
    privileged: bool = False,
    job_role_arn: str | None = None,
    execution_role_arn: str | None = None,
    ulimits: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Returns the node group of a role whose first node has that index."""
    container = container_properties(
        role,
        "",
        Place(0, start_idx),
        privileged=privileged,
        job_role_arn=job_role_arn,
        execution_role_arn=execution_role_arn,
        ulimits=ulimits,
    )
    instance = role.resource.capabilities.get(INSTANCE_TYPE)
    if instance is not None:
        container["instanceType"] = str(instance)
    return node_group(start_idx, role.num_replicas, container)


def unique_name(name: str) -> str:
    """Returns the name with a random id, from ``make_unique``, which clients may replace."""
    import torchx.schedulers.aws_batch_scheduler as package

    return str(package.make_unique(name))
