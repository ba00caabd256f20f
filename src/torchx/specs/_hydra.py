"""Composes apps with hydra, which is optional."""

import os
import sys
from typing import Any

import torchx.specs as specs
from torchx.specs import macros

_RESOLVERS = {
    "torchx.app_id": macros.app_id,
    "torchx.replica_id": macros.replica_id,
    "torchx.rank0_env": macros.rank0_env,
    "torchx.img_root": macros.img_root,
}


def compose_app(config_dir: str, config_name: str, overrides: list[str]) -> specs.AppDef:
    """The app that the node ``app`` of a config describes.

    Raises:
        ModuleNotFoundError: if hydra is not installed; it says how to install it.
    """
    try:
        from hydra import compose, initialize_config_dir
        from hydra.utils import instantiate
        from omegaconf import OmegaConf
    except ModuleNotFoundError as err:
        msg = f"`utils.hydra` needs hydra ({err}); install it with: pip install 'torchx[hydra]'"
        raise ModuleNotFoundError(msg, name=err.name) from None
    for name, text in _RESOLVERS.items():
        OmegaConf.register_new_resolver(name, _constant(text), replace=True)
    with initialize_config_dir(config_dir=os.path.abspath(config_dir), version_base="1.3"):
        config = compose(config_name=config_name, overrides=overrides)
    if os.environ.get("TORCHX_DEBUG"):
        sys.stderr.write(OmegaConf.to_yaml(config))
    app: specs.AppDef = instantiate(config.app, _convert_="all")
    return app


def _constant(text: str) -> Any:
    return lambda *_: text
