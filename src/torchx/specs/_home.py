"""Names of ``torchx._home``, for what imports them from here."""

from torchx._home import TORCHX_HOME, home_dir

__all__ = ["TORCHX_HOME", "home_dir"]
