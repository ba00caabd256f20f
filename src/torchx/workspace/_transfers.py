"""Names that moved to ``torchx._docker``, for the scheduler, which still imports them from here."""

from torchx._docker._transfers import TransferFailed, show, silent

__all__ = ["TransferFailed", "show", "silent"]
