"""Names of ``torchx._retry``, which is below all packages: the client of Docker needs it too."""

from torchx._retry import PAUSES_S, passes, with_retries

__all__ = ["PAUSES_S", "passes", "with_retries"]
