"""Finds the trackers of jobs in the environment and config files."""

import os

from torchx._startup.lazy_logger import get_logger
from torchx._tracker_environment import factory_in, setting_in, split_names
from torchx.runner.config import get_config, get_configs
from torchx.settings import ENV_TORCHX_TRACKERS

logger = get_logger("torchx.runner.api")


def get_configured_trackers() -> dict[str, str | None]:
    """Returns the names of the trackers to use, each with its configuration."""
    listed = os.environ.get(ENV_TORCHX_TRACKERS)
    names = split_names(listed) if listed is not None else get_configs("torchx", "tracker")
    trackers = {}
    for name in names:
        config = setting_in(os.environ, name)
        trackers[name] = config if config is not None else get_config("tracker", name, "config")
    if trackers:
        logger.debug("trackers: %s", ", ".join(trackers))  # configs may hold passwords
    return trackers


def get_tracker_factories() -> dict[str, str]:
    """Returns the factories of trackers with an alias: ``alias = plugin_or_mod:fn``."""
    factories = {}
    for name, value in get_configs("torchx", "tracker").items():
        factory = factory_in(os.environ, name) or value
        if factory and factory != name:
            factories[name] = factory
    return factories
