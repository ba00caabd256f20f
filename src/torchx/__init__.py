"""TorchX: write a job once, launch it anywhere."""

from typing import TYPE_CHECKING, Any

from torchx.version import __version__

if TYPE_CHECKING:
    IMAGE: str
    """Image that the built-in components run in by default."""

__all__ = ["IMAGE", "__version__"]


def __getattr__(name: str) -> Any:  # computed on first use: looking for plugins takes time
    if name == "IMAGE":
        from torchx.version import TORCHX_IMAGE  # type: ignore[attr-defined]  # also on first use

        globals()[name] = TORCHX_IMAGE
        return TORCHX_IMAGE
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
