"""Options of ``local_cwd``."""

from torchx._startup.dataclass import light_dataclass
from torchx.schedulers.api import StructuredOpts


@light_dataclass
class Opts(StructuredOpts):
    log_dir: str | None = None
    """Directory for the replicas' log files. Default: below $TORCHX_HOME, until `torchx delete`."""

    prepend_cwd: bool = False
    """Put the working directory before the role's PATH. Default: after it, before yours.
    """

    auto_set_cuda_visible_devices: bool = False
    """Give each replica its own GPUs of this machine through CUDA_VISIBLE_DEVICES."""

    detach: bool = False
    """Let the job go on when the process that launches it ends."""

    on_failure: str = "end"
    """When a replica has failed for good: `end` the others at once, or `wait` for their end."""

    grace_s: int = 10
    """Seconds between SIGTERM and SIGKILL when the job is cancelled or restarted."""


LocalOpts = Opts
"""Name of release 0.7 (NeMo-Run imports it)."""
