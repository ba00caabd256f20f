"""Options of ``local_cwd``."""

from collections.abc import Mapping

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

_OPTION_NAMES = frozenset(Opts.__dataclass_fields__) - {"_extra_cfg"}


def as_opts(cfg: object) -> Opts:
    """The options in a plain and perhaps partial mapping; the defaults for anything else."""
    if isinstance(cfg, Opts):
        return cfg
    if not isinstance(cfg, Mapping):
        return Opts()  # a client's own object in its place (NeMo-Run)
    given = {k: v for k, v in cfg.items() if k in _OPTION_NAMES and v is not None}
    return Opts.from_cfg(given)
