"""The computation, and the configuration of it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

CONFIG = Path(__file__).parents[1] / "config" / "defaults.yaml"


def read_config(overrides: list[str]) -> dict[str, Any]:
    """The defaults with the overrides, such as ``throws=true``.

    Hydra reads them where it is installed, with all of its grammar; else PyYAML does.
    """
    try:
        from hydra import compose, initialize_config_dir
        from omegaconf import OmegaConf
    except ModuleNotFoundError:
        return _read_plainly(overrides)
    with initialize_config_dir(version_base=None, config_dir=str(CONFIG.parent.resolve())):
        return dict(OmegaConf.to_container(compose(CONFIG.stem, overrides), resolve=True))


def _read_plainly(overrides: list[str]) -> dict[str, Any]:
    import yaml

    config = dict(yaml.safe_load(CONFIG.read_text()))
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or key not in config:
            raise SystemExit(f"`{override}` is not KEY=VALUE with a KEY of: {', '.join(config)}")
        config[key] = yaml.safe_load(value)
    return config


def compute_world_size(config: Mapping[str, Any]) -> int:
    """The number of processes, as the sum over a vector in which each process set its element."""
    for name in ("rank", "world_size", "master_addr", "master_port"):
        os.environ.setdefault(name.upper(), str(config[name]))
    dist.init_process_group(config["backend"])
    try:
        one_hot = torch.zeros(dist.get_world_size())
        one_hot[dist.get_rank()] = 1
        dist.all_reduce(one_hot)
        computed = int(one_hot.sum())
        print_line(
            f"rank: {dist.get_rank()}, actual world_size: {dist.get_world_size()},"
            f" computed world_size: {computed}"
        )
    finally:
        dist.destroy_process_group()
    if config["throws"]:
        raise RuntimeError("failing, as `throws` is set")
    return computed


def print_line(text: str) -> None:
    """Prints in one write, so that lines of several processes do not mix."""
    os.write(1, f"{text}\n".encode())
