"""Options of ``local_docker``."""

from dataclasses import dataclass

from torchx.schedulers.api import StructuredOpts


@dataclass
class Opts(StructuredOpts):
    copy_env: list[str] | None = None
    """Variables to copy from your environment, as glob patterns. Example: WANDB_*,HF_TOKEN"""

    env: dict[str, str] | None = None
    """More variables for every replica, over those of copy_env. Example: K1:V1,K2:V2"""

    privileged: bool = False
    """Give the containers all rights on this machine, for tools that need it."""

    on_failure: str = "end"
    """What happens to the other replicas when one has failed for good: `end` ends them, as long
    as `torchx run` or `Runner.wait` waits for the job; `wait` lets them go on."""
