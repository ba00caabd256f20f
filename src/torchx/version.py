"""Version of the package, and the image that its components run in by default."""

TYPE_CHECKING = False  # see `torchx/_startup/__init__.py`
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.8.0"


def _get_torchx_image(version: str) -> str:
    return f"ghcr.io/pytorch/torchx:{version}"


def _find_image() -> str:
    """Returns the image from ``$TORCHX_IMAGE``, else from the entry point ``torchx.version`` /
    ``get_torchx_image``, else the default one, which ``docker/Dockerfile`` builds.
    """
    import os

    from torchx.settings import ENV_TORCHX_IMAGE
    from torchx.util.entrypoints import load

    named = os.environ.get(ENV_TORCHX_IMAGE)
    if named:
        return named

    find = load("torchx.version", "get_torchx_image", default=_get_torchx_image)
    return str(find(__version__))


def __getattr__(name: str) -> "Any":  # computed on first use: looking for plugins takes time
    if name == "TORCHX_IMAGE":
        image = _find_image()
        globals()[name] = image
        return image
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
