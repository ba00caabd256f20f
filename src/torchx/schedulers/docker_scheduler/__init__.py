"""Runs apps as containers of a Docker daemon: the scheduler ``local_docker``."""

from torchx.schedulers.ids import make_unique

from ._client import ensure_network, has_docker
from ._options import Opts
from ._request import (
    LABEL_APP_ID,
    LABEL_REPLICA_ID,
    LABEL_ROLE_NAME,
    LABEL_VERSION,
    NETWORK,
    DockerContainer,
    DockerJob,
)
from ._scheduler import DockerScheduler, _to_str, create_scheduler
from ._states import CONTAINER_STATE

__all__ = [
    "CONTAINER_STATE",
    "LABEL_APP_ID",
    "LABEL_REPLICA_ID",
    "LABEL_ROLE_NAME",
    "LABEL_VERSION",
    "NETWORK",
    "DockerContainer",
    "DockerJob",
    "DockerScheduler",
    "Opts",
    "_to_str",
    "create_scheduler",
    "ensure_network",
    "has_docker",
    "make_unique",
]
