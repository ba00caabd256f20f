"""Names that moved to ``torchx._docker``, for the scheduler, which still imports them from here."""

from torchx._docker._transfers import show, silent

__all__ = ["show", "silent"]
