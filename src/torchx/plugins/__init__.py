"""Plugins: how packages add schedulers, named resources, trackers and event handlers.

A module below ``torchx_plugins.<group>`` decorates a factory with ``@register``; once the package
that holds it is installed, TorchX finds it. Importing this module looks for nothing.

>>> from torchx.plugins import PluginType, find
>>> isinstance(find(PluginType.SCHEDULER), dict)
True
"""

from torchx.plugins._registration import (
    EIGHTH,
    HALF,
    QUARTER,
    SIXTEENTH,
    WHOLE,
    halve_mem_down_to,
    powers_of_two_gpus,
    register,
    resource_tags,
)
from torchx.plugins._registry import PluginRegistry, find, registry
from torchx.plugins._types import PluginSource, PluginType, RegistrationError

__all__ = [
    "EIGHTH",
    "HALF",
    "QUARTER",
    "SIXTEENTH",
    "WHOLE",
    "PluginRegistry",
    "PluginSource",
    "PluginType",
    "RegistrationError",
    "find",
    "halve_mem_down_to",
    "powers_of_two_gpus",
    "register",
    "registry",
    "resource_tags",
]
