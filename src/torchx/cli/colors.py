"""Former place of `torchx.util.colors` (NeMo-Run imports it from here)."""

from torchx.util.colors import BLUE, ENDC, GRAY, GREEN, ORANGE

__all__ = ["BLUE", "ENDC", "GRAY", "GREEN", "ORANGE"]
