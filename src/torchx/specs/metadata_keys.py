"""Keys that TorchX writes into metadata and environment; changing one breaks compatibility."""

from torchx.settings import ENV_TORCHX_CONTEXT_NAME

TORCHX_CONTEXT_NAME = ENV_TORCHX_CONTEXT_NAME
"""Environment variable that names the calling context, for example ``cli_run``."""
NA = "<<NA>>"
"""A metadata value that is not available."""


class app_metadata:
    """Keys of the metadata of an app."""

    CONTEXT = "torchx/context"
    VERSION = "torchx/version"
    SCHEDULER = "torchx/scheduler"
    ROLES_PREFIX = "torchx/roles."
    """``torchx/roles.<role>...``: the first ``.`` after the prefix ends the role's name."""
