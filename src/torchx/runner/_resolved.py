"""Resolves the options of a scheduler: their values, and where each comes from."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import light_dataclass
from torchx.runner import _prepare, config
from torchx.settings import ENV_TORCHXCONFIG, PARAM_PREFIX

if TYPE_CHECKING:
    from torchx.specs.api import CfgVal, runopts

FLAG = "flag"
ENVIRONMENT = "environment"
FILE = "file"
DEFAULT = "default"
UNSET = "unset"


@light_dataclass(frozen=True)
class ResolvedOption:
    """The value of one option, or parameter of the scheduler, and its origin."""

    name: str
    value: "CfgVal | object"
    origin: str
    """``flag``, ``environment``, ``file``, ``default``, or ``unset`` for a required one."""
    where: str = ""
    """The file and line, or the name of the variable."""


def resolve_options(
    scheduler: str, opts: "runopts", given: "Mapping[str, CfgVal]"
) -> list[ResolvedOption]:
    """Returns all options with the values that a launch would use.

    Args:
        given: values from flags; they win over config files, which win over defaults.

    Raises:
        InvalidRunConfigException: for a value of the wrong type in a file.
    """
    cfg: dict[str, CfgVal] = dict(given)
    found = {
        opts.canonical_key(name) or name: ResolvedOption(name, value, FLAG, "-cfg")
        for name, value in given.items()
    }
    named = os.environ.get(ENV_TORCHXCONFIG)
    for path in config.find_configs():
        file = config._open(path)
        before = {*cfg}
        config._load(scheduler, file, cfg, lambda: opts)
        for name in cfg.keys() - before:
            where = _place(file, scheduler, name, opts)
            if named:
                where += f" ({ENV_TORCHXCONFIG})"
            found[name] = ResolvedOption(name, cfg[name], FILE, where)
    rows = []
    for name, option in opts:
        known = found.pop(name, None)
        if known is not None:
            rows.append(ResolvedOption(name, known.value, known.origin, known.where))
        else:
            origin = UNSET if option.is_required else DEFAULT
            rows.append(ResolvedOption(name, option.default, origin))
    return [*rows, *found.values()]


def resolve_parameters(factory: Any, environ: Mapping[str, str]) -> list[ResolvedOption]:
    """Returns the parameters that environment variables pass to a scheduler's factory."""
    names = {
        variable[len(PARAM_PREFIX) :].lower(): variable
        for variable in environ
        if variable.upper().startswith(PARAM_PREFIX)
    }
    known = _prepare.known_params(factory, _prepare.scheduler_params(environ))
    return [
        ResolvedOption(name, value, ENVIRONMENT, names.get(name, ""))
        for name, value in known.items()
    ]


def _place(file: "config._File", section: str, name: str, opts: "runopts") -> str:
    """Returns file and line of an option, in any of its spellings."""
    for title in (section, "DEFAULT"):
        inside = False
        for number, line in enumerate(file.text.splitlines(), 1):
            if line.startswith("["):
                inside = line.strip() == f"[{title}]"
            elif inside:
                key = line.replace(":", "=", 1).partition("=")[0].strip()
                if key and opts.canonical_key(key) == name:
                    return f"{file.path}:{number}"
    return str(file.path)
