"""Runs apps as containers of a Docker daemon: the scheduler ``local_docker``."""

from torchx.schedulers.ids import make_unique

from ._client import has_docker
from ._compat import DockerOpts, _to_str
from ._network import ensure_network
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
from ._scheduler import DockerScheduler, create_scheduler
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
    "DockerOpts",
    "DockerScheduler",
    "Opts",
    "_to_str",
    "create_scheduler",
    "ensure_network",
    "has_docker",
    "make_unique",
]
