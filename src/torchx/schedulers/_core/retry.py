"""``with_retries``, which is below all packages, as the client of Docker's daemon needs it too."""

from torchx._retry import PAUSES_S, with_retries

__all__ = ["PAUSES_S", "with_retries"]
