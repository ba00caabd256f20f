"""Composes apps with hydra, which is optional."""

import os
import sys
from typing import Any

import torchx.specs as specs
from torchx.errors import NotInstalled
from torchx.settings import ENV_TORCHX_DEBUG
from torchx.specs import macros

_MACROS = ("app_id", "replica_id", "rank0_env", "img_root")


def compose_app(config_dir: str, config_name: str, overrides: list[str]) -> specs.AppDef:
    """Builds the app that the node ``app`` of a config describes.

    Raises:
        NotInstalled: (a ``ModuleNotFoundError``) if hydra is missing; the message has the install
        command.
    """
    try:
        from hydra import compose, initialize_config_dir
        from hydra.utils import instantiate
        from omegaconf import OmegaConf
    except ModuleNotFoundError as err:
        msg = f"`utils.hydra` needs hydra ({err})"
        raise NotInstalled(msg, name=err.name, extra="hydra") from None
    for name in _MACROS:
        OmegaConf.register_new_resolver(f"torchx.{name}", _constant(_token(name)), replace=True)
    with initialize_config_dir(config_dir=os.path.abspath(config_dir), version_base="1.3"):
        config = compose(config_name=config_name, overrides=overrides)
    if os.environ.get(ENV_TORCHX_DEBUG):
        sys.stderr.write(OmegaConf.to_yaml(config))
    app: specs.AppDef = _with_macros(instantiate(config.app, _convert_="all"))
    return app


def _token(name: str) -> str:
    """Returns the token that replaces a macro for hydra, where ``${...}`` means something else."""
    return f"<torchx macro {name}>"


def _with_macros(value: Any) -> Any:
    """Replaces the tokens in a value's texts by their macros."""
    if type(value) is str:  # but not enums that are also texts
        for name in _MACROS:
            value = value.replace(_token(name), getattr(macros, name))
        return value
    if isinstance(value, list):
        return [_with_macros(v) for v in value]
    if isinstance(value, dict):
        return {k: _with_macros(v) for k, v in value.items()}
    if isinstance(value, (specs.AppDef, specs.Role)):
        for field, held in vars(value).items():
            setattr(value, field, _with_macros(held))
    return value


def _constant(text: str) -> Any:
    return lambda *_: text
