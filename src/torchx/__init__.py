"""TorchX: write a job once, launch it anywhere."""

from torchx.version import __version__

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    from typing import Any

    IMAGE: str
    """Image that the built-in components run in by default."""

__all__ = ["IMAGE", "__version__"]


def __getattr__(name: str) -> "Any":  # computed on first use: looking for plugins takes time
    if name == "IMAGE":
        from torchx.version import TORCHX_IMAGE

        globals()[name] = TORCHX_IMAGE
        return TORCHX_IMAGE
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
