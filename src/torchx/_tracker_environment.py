"""Environment variables that pass tracker settings from a launcher to its jobs."""

from typing import TYPE_CHECKING

from torchx.settings import TRACKER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping


def tracker_config_env_var_name(entrypoint_key: str) -> str:
    """Name of the variable with the configuration of a tracker.

    >>> tracker_config_env_var_name("tracker1")
    'TORCHX_TRACKER_TRACKER1_CONFIG'
    """
    return f"{TRACKER_PREFIX}{entrypoint_key.upper()}_CONFIG"


def exportable(entrypoint_key: str, suffix: str = "CONFIG") -> str:
    """Returns the variable's name for use in a shell: ``pkg.mod:fn`` → ``…_PKG_MOD_FN_…``."""
    key = "".join(c if c.isascii() and c.isalnum() else "_" for c in entrypoint_key)
    return f"{TRACKER_PREFIX}{key.upper()}_{suffix}"


def setting_in(environ: "Mapping[str, str]", key: str) -> str | None:
    """Returns the configuration of a tracker; ``None`` if it has none."""
    value = environ.get(tracker_config_env_var_name(key))
    return value if value is not None else environ.get(exportable(key))


def factory_in(environ: "Mapping[str, str]", key: str) -> str | None:
    """Returns the factory of a tracker; ``None`` if the tracker's name is that of the factory."""
    return environ.get(exportable(key, "FACTORY"))


def split_names(text: str) -> list[str]:
    """Splits comma-separated names and drops duplicates."""
    names = (name.strip() for name in text.split(","))
    return list(dict.fromkeys(name for name in names if name))
