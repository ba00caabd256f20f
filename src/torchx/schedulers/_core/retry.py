"""Names of ``torchx._retry``, which is below all packages because the Docker client needs it."""

from torchx._retry import PAUSES_S, passes, with_retries

__all__ = ["PAUSES_S", "passes", "with_retries"]
