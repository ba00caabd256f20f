"""Runs apps as processes of this machine: the scheduler ``local_cwd``."""

from typing import TYPE_CHECKING

from torchx._startup import late_names
from torchx.schedulers.ids import make_unique

from ._compat import PopenProtocol, SignalException, _LocalAppDef
from ._images import (
    CWDImageProvider,
    ImageProvider,
    LocalDirectoryImageProvider,
    ReplicaParam,
)
from ._options import LocalOpts, Opts
from ._request import (
    COMBINED_LOG,
    ENV_CUDA_VISIBLE_DEVICES,
    NA,
    STDERR_LOG,
    STDOUT_LOG,
    PopenRequest,
)
from ._request import join_path as _join_PATH
from ._scheduler import AppId, LocalScheduler, create_scheduler

__all__ = [
    "COMBINED_LOG",
    "ENV_CUDA_VISIBLE_DEVICES",
    "NA",
    "STDERR_LOG",
    "STDOUT_LOG",
    "AppId",
    "CWDImageProvider",
    "ImageProvider",
    "LocalDirectoryImageProvider",
    "LocalOpts",
    "LocalScheduler",
    "LogIterator",
    "Opts",
    "PopenProtocol",
    "PopenRequest",
    "ReplicaParam",
    "SignalException",
    "_LocalAppDef",
    "_join_PATH",
    "create_scheduler",
    "make_unique",
]

if TYPE_CHECKING:
    from ._iterator import LogIterator
else:
    # published, and for those who read log files themselves
    __getattr__, __dir__ = late_names(
        __name__, {"LogIterator": "torchx.schedulers.local_scheduler._iterator:LogIterator"}
    )
