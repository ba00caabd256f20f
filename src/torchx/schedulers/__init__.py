"""Names and factories of the schedulers. None is imported until it is created."""

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torchx.errors import InvalidInput
from torchx.errors import SchedulerNotInstalled as SchedulerNotInstalled

if TYPE_CHECKING:
    from torchx.schedulers.api import Scheduler as Scheduler

DEFAULT_SCHEDULER_MODULES: Mapping[str, str] = {
    "local_cwd": "torchx.schedulers.local_scheduler",
    "local_docker": "torchx.schedulers.docker_scheduler",
    "slurm": "torchx.schedulers.slurm_scheduler",
    "kubernetes": "torchx.schedulers.kubernetes_scheduler",
    "kubernetes_mcad": "torchx.schedulers.kubernetes_mcad_scheduler",
    "aws_batch": "torchx.schedulers.aws_batch_scheduler",
    "aws_sagemaker": "torchx.schedulers.aws_sagemaker_scheduler",
    "lsf": "torchx.schedulers.lsf_scheduler",
}
"""Built-in schedulers, the default first."""


_EXTRAS = {
    "local_docker": "docker",
    "kubernetes": "kubernetes",
    "kubernetes_mcad": "kubernetes",
    "aws_batch": "aws",
    "aws_sagemaker": "aws",
}
"""The extra to install for a built-in scheduler."""


SCHEDULER_ALIASES: Mapping[str, str] = {"local": "local_cwd", "docker": "local_docker"}
"""Aliases of built-in schedulers, accepted everywhere and never printed."""


def __getattr__(name: str) -> Any:  # on first use: listing names must not load the interface
    if name == "Scheduler":
        from torchx.schedulers.api import Scheduler

        return Scheduler
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def canonical_name(name: str, registered: Container[str]) -> str:
    """Returns the name that a scheduler is registered by; a registered name is unchanged.

    >>> canonical_name("docker", ["local_docker"]), canonical_name("docker", ["docker"])
    ('local_docker', 'docker')
    """
    if name in registered:
        return name
    other = SCHEDULER_ALIASES.get(name, name)
    return other if other in registered else name


class SchedulerFactory(Protocol):
    """Creates a scheduler. All factories get the same keywords and ignore unknown ones."""

    def __call__(self, session_name: str, **kwargs: object) -> "Scheduler[Any]": ...


def get_scheduler_factories(*, skip_defaults: bool = False) -> dict[str, SchedulerFactory]:
    """Returns all factories by name: plugins, then the built-ins that no plugin replaces.

    >>> "local_cwd" in get_scheduler_factories()
    True
    """
    factories = _plugin_factories()
    if not skip_defaults:
        for name, module in DEFAULT_SCHEDULER_MODULES.items():
            factories.setdefault(name, _BuiltinFactory(name, module))
    return factories


def get_default_scheduler_name() -> str:
    """Returns the first name in ``get_scheduler_factories()``."""
    for name in get_scheduler_factories():
        return name
    msg = "no scheduler is registered, name one explicitly or install a scheduler plugin"
    raise InvalidInput(msg)


def _plugin_factories() -> dict[str, SchedulerFactory]:
    """Returns the factories that installed packages register, as a new dict."""
    from torchx._startup.plugin_lookup import any_plugins

    if not any_plugins("SCHEDULER"):
        return {}
    from torchx.plugins import PluginType, find

    return dict(find(PluginType.SCHEDULER))


class _BuiltinFactory:
    """The factory of a built-in scheduler; imports its module when called."""

    def __init__(self, name: str, module: str) -> None:
        self._name = name
        self._module = module

    def __repr__(self) -> str:
        return f"<factory of {self._name}: {self._module}.create_scheduler>"

    def __call__(self, session_name: str, **kwargs: object) -> "Scheduler[Any]":
        from importlib import import_module

        try:
            module = import_module(self._module)
        except ModuleNotFoundError as err:
            raise self._not_installed(err) from err
        scheduler: Scheduler[Any] = module.create_scheduler(session_name, **kwargs)
        return scheduler

    def _not_installed(self, err: ModuleNotFoundError) -> SchedulerNotInstalled:
        if err.name == self._module:
            msg = f"scheduler `{self._name}` is not part of this version of TorchX"
            extra = None
        else:
            msg = f"scheduler `{self._name}` cannot be used: {err}"
            extra = _EXTRAS.get(self._name)
        return SchedulerNotInstalled(msg, name=err.name, extra=extra)
