"""The schedulers of a runner, and the state of apps on them."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx.errors import UnsupportedRequest
from torchx.runner import _prepare
from torchx.runner._calls import recorded_call
from torchx.schedulers import SchedulerFactory, canonical_name, get_scheduler_factories
from torchx.specs.api import AppDef, AppHandle, AppStatus, CfgVal, parse_app_handle, runopts

if TYPE_CHECKING:
    from typing_extensions import Self

    from torchx.runner._resolved import ResolvedOption
    from torchx.schedulers.api import Scheduler


class Session:
    """Base of the runner's groups of methods; see ``torchx.runner.api.Runner``."""

    _scheduler_factories: dict[str, SchedulerFactory]
    _scheduler_params: dict[str, object]
    _component_defaults: dict[str, dict[str, str]]
    _scheduler_instances: "dict[str, Scheduler[Any]]"
    _apps: dict[AppHandle, AppDef]

    def __new__(cls, *args: object, **kwargs: object) -> "Self":
        """Creates a runner without schedulers, for subclasses that skip ``Runner.__init__``."""
        made = super().__new__(cls)
        made._name = ""
        made._scheduler_factories = {}
        made._scheduler_params = {}
        made._component_defaults = {}
        # by scheduler name; clients insert schedulers of their own (CodeFlare)
        made._scheduler_instances = {}
        made._apps = {}
        return made

    def __init__(
        self,
        name: str = "",
        scheduler_factories: dict[str, SchedulerFactory] | None = None,
        component_defaults: dict[str, dict[str, str]] | None = None,
        scheduler_params: dict[str, object] | None = None,
    ) -> None:
        self._name = name
        if scheduler_factories is None:
            scheduler_factories = get_scheduler_factories()
        self._scheduler_factories = scheduler_factories
        self._scheduler_params = {
            **_prepare.scheduler_params(os.environ),
            **(scheduler_params or {}),
        }
        self._component_defaults = component_defaults or {}

    def __repr__(self) -> str:
        parts = f"name={self._name}, schedulers={self._scheduler_factories}, apps={self._apps}"
        return f"Runner({parts})"

    def close(self) -> None:
        """Closes every scheduler that was used, which ends the local jobs attached to them."""
        failure: Exception | None = None
        for scheduler in list(self._scheduler_instances.values()):
            try:
                scheduler.close()
            except Exception as err:  # noqa: BLE001 - the others must be closed as well
                failure = failure or err
        if failure is not None:
            raise failure

    def name(self) -> str:
        """Name of the session."""
        return self._name

    # -- looking ------------------------------------------------------------------------------

    def status(self, app_handle: AppHandle) -> AppStatus | None:
        """Returns the state of the app and its replicas; ``None`` if the app is unknown."""
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("status", backend, app_id):
            found = scheduler.describe(app_id)
            if found is None:
                self._apps.pop(app_handle, None)
                return None
            return AppStatus(
                found.state,
                found.num_restarts,
                msg=found.msg,
                structured_error_msg=found.structured_error_msg,
                ui_url=found.ui_url,
                roles=found.roles_statuses,
            )

    # -- schedulers ---------------------------------------------------------------------------

    def scheduler_backends(self) -> "list[str]":
        """Returns the names of the registered schedulers."""
        return [*self._scheduler_factories]

    def scheduler_run_opts(self, scheduler: str) -> runopts:
        """Returns the options of a scheduler."""
        return self._scheduler(scheduler).run_opts()

    def resolved_run_opts(
        self, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> "list[ResolvedOption]":
        """Returns the options and parameters of a scheduler, their values, and their origins.

        Args:
            cfg: the options as they would be given to ``run``; they win over config files.
        """
        from torchx.runner._resolved import resolve_options, resolve_parameters

        opts = self._scheduler(scheduler).run_opts()
        factory = self._scheduler_factories[scheduler]
        return resolve_options(scheduler, opts, cfg or {}) + resolve_parameters(factory, os.environ)

    def cfg_from_str(self, scheduler: str, *cfg_literal: str) -> dict[str, CfgVal]:
        """Parses options from ``key=value`` texts; later texts win."""
        opts = self._scheduler(scheduler).run_opts()
        cfg: dict[str, CfgVal] = {}
        for literal in cfg_literal:
            cfg.update(opts.cfg_from_str(literal))
        return cfg

    def _scheduler(self, scheduler: str) -> "Scheduler[Any]":
        scheduler = self._canonical(scheduler)
        found = self._scheduler_instances.get(scheduler)
        if found is None:
            factory = self._scheduler_factories.get(scheduler)
            if factory is None:
                raise _prepare.unknown_scheduler(scheduler, self.scheduler_backends())
            found = factory(self._name, **_prepare.known_params(factory, self._scheduler_params))
            _prepare.check_made(found, scheduler, factory)
            self._scheduler_instances[scheduler] = found
        return found

    def _canonical(self, scheduler: str) -> str:
        """Returns the name that a scheduler is registered by, also for an alias."""
        if scheduler in self._scheduler_instances:
            return scheduler
        return canonical_name(scheduler, self._scheduler_factories)

    def _find(self, app_handle: AppHandle) -> "tuple[Scheduler[Any], str, str]":
        """Returns the scheduler of an app, the app's id there and the scheduler's name."""
        backend, _session, app_id = parse_app_handle(app_handle)
        backend = self._canonical(backend)
        return self._scheduler(backend), app_id, backend


def method_of(scheduler: object, name: str, backend: str) -> Any:
    """Returns a method that schedulers of other packages may lack."""
    method = getattr(scheduler, name, None)
    if method is None:
        msg = f"scheduler `{backend}` does not support `{name}`"
        raise UnsupportedRequest(msg)
    return method
