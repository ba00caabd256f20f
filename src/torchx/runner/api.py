"""The runner: submits apps to schedulers and manages them by their handles."""

import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable
from torchx.runner import _prepare
from torchx.runner._async_verbs import AsyncVerbs
from torchx.runner._calls import json_of, note_app, recorded_call, text_of
from torchx.runner._changes import WatchVerbs
from torchx.runner._ending import EndingVerbs
from torchx.runner._explaining import explaining_refusals, has_look
from torchx.runner._inside import InsideVerbs
from torchx.runner._recorded import RecordVerbs
from torchx.runner._trackers import get_configured_trackers
from torchx.runner._trackers import get_tracker_factories as get_tracker_factories
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.api import one_look, resolve_cfg
from torchx.settings import ENV_TORCHX_PARENT_RUN_ID
from torchx.specs.api import (
    AppDef,
    AppDryRunInfo,
    AppHandle,
    AppStatus,
    CfgVal,
    Role,
    Workspace,
    macros,
    make_app_handle,
)
from torchx.specs.builders import materialize_appdef
from torchx.util.session import get_session_id_or_create_new
from torchx.util.types import none_throws
from torchx.workspace.api import WorkspaceMixin

if TYPE_CHECKING:
    from torchx.schedulers._core.portability import Finding
    from torchx.schedulers.api import (
        FailedReplica,
        ListAppResponse,
    )

__all__ = ["Runner", "get_configured_trackers", "get_runner"]

DEFAULT_SESSION_NAME = "torchx"

AWAY_S = 150.0
"""Seconds for which ``wait`` tolerates a backend that cannot be reached."""

logger = get_logger(__name__)


def get_runner(
    name: str | None = None,
    component_defaults: dict[str, dict[str, str]] | None = None,
    **scheduler_params: object,
) -> "Runner":
    """Creates a runner with all registered schedulers.

    >>> with get_runner() as runner:
    ...     "local_cwd" in runner.scheduler_backends()
    True

    Args:
        name: deprecated; name of the session, which is part of every handle.
        component_defaults: component → parameter → default, in the form of the command line.
        scheduler_params: given to every scheduler's factory.
    """
    if name:
        import warnings

        warnings.warn(
            "custom session names are deprecated, call `get_runner()` without a name",
            FutureWarning,
            stacklevel=2,
        )
    return Runner(
        name or DEFAULT_SESSION_NAME,
        get_scheduler_factories(),
        component_defaults,
        scheduler_params=scheduler_params,
    )


class Runner(AsyncVerbs, EndingVerbs, InsideVerbs, WatchVerbs, RecordVerbs):
    """Submits apps and manages them by handle; closes its schedulers when it is closed.

    Args:
        name: of the session, the middle part of handles; may be empty.
        scheduler_factories: by name; all registered ones for ``None``.
        component_defaults: component → parameter → default, in the form of the command line.
        scheduler_params: given to every factory, over those from ``TORCHX_*`` variables.
    """

    def __enter__(self) -> "Runner":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- submitting ---------------------------------------------------------------------------

    def run_component(
        self,
        component: str,
        component_args: "list[str] | dict[str, Any]",
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
        *,
        strict: bool = False,
    ) -> AppHandle:
        """Runs a component found by name, with arguments as on the command line or by name.

        Raises:
            ValueError: and whatever else ``dryrun_component`` raises.
        """
        with recorded_call("run_component", scheduler, workspace=text_of(workspace)) as log:
            info = self.dryrun_component(
                component, component_args, scheduler, cfg, workspace, parent_run_id, **_if(strict)
            )
            handle = self.schedule(info)
            note_app(log, info.app, handle)
        return handle

    def dryrun_component(
        self,
        component: str,
        component_args: "list[str] | dict[str, Any]",
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
        *,
        strict: bool = False,
    ) -> "AppDryRunInfo[Any]":
        """Returns the request that ``run_component`` would submit."""
        app = self.component_app(component, component_args)
        return self.dryrun(app, scheduler, cfg, workspace, parent_run_id, **_if(strict))

    def component_app(self, component: str, component_args: "list[str] | dict[str, Any]") -> AppDef:
        """Returns the app that a component builds from these arguments, for any scheduler."""
        from torchx.specs.finder import get_component

        if isinstance(component_args, dict):
            tokens, by_name = [], component_args
        else:
            tokens, by_name = component_args, {}
        defaults = self._component_defaults.get(component)
        return materialize_appdef(get_component(component).fn, tokens, defaults, by_name)

    @overload
    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
    ) -> AppHandle: ...

    @overload
    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
        *,
        dryrun: bool,
    ) -> "AppHandle | AppDryRunInfo[Any]": ...

    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
        *,
        dryrun: bool = False,
    ) -> "AppHandle | AppDryRunInfo[Any]":
        """Submits the app and returns its handle; with ``dryrun``, returns the request instead."""
        with recorded_call("run", scheduler, workspace=str(workspace), runcfg=json_of(cfg)) as log:
            info = self.dryrun(app, scheduler, cfg, workspace, parent_run_id)
            if dryrun:
                note_app(log, info.app, None)
                return info
            handle = self.schedule(info)
            note_app(log, info.app, handle)
        return handle

    def schedule(self, dryrun_info: "AppDryRunInfo[Any]") -> AppHandle:
        """Submits the request of a dry run, which may have been changed since."""
        scheduler = none_throws(dryrun_info._scheduler)
        with recorded_call("schedule", scheduler, runcfg=json_of(dryrun_info.cfg)) as log:
            sched = self._scheduler(scheduler)
            with explaining_refusals(sched, scheduler):
                app_id = sched.schedule(dryrun_info)
            handle = make_app_handle(scheduler, self._name, app_id)
            if dryrun_info.app is not None:
                self._apps[handle] = dryrun_info.app
            from torchx._launches import note_launch

            note_launch(handle)
            self._note_request(scheduler, app_id, dryrun_info)
            note_app(log, dryrun_info.app, handle)
        return handle

    def dryrun(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
        *,
        strict: bool = False,
    ) -> "AppDryRunInfo[Any]":
        """Returns the request that ``run`` would submit. ``app`` is not changed: ``info.app`` is a
        copy.

        Args:
            cfg: options of the scheduler; config files are not read.
            workspace: workspace that replaces the first role's, if the scheduler builds workspaces.
            parent_run_id: given to the trackers; ``TORCHX_PARENT_RUN_ID`` wins over it.
            strict: refuse an app of which the scheduler would drop something.

        Raises:
            UnknownSchedulerException: if there is no such scheduler.
            InvalidRunConfigException: if ``cfg`` does not fit its options.
            ValueError: if the app cannot be run.
        """
        app = _prepare.own_copy(app)
        _prepare.check_has_roles(app)
        scheduler = self._canonical(scheduler)
        env = _prepare.replica_env(
            make_app_handle(scheduler, self._name, macros.app_id),
            get_session_id_or_create_new(),
            os.environ.get(ENV_TORCHX_PARENT_RUN_ID) or parent_run_id,
            get_configured_trackers(),
            get_tracker_factories(),
        )
        for role in app.roles:
            _prepare.check_role(role)
            role.env.update(env)
        with recorded_call(
            "dryrun", scheduler, runcfg=json_of(cfg), workspace=str(workspace)
        ) as log:
            sched = self._scheduler(scheduler)
            with explaining_refusals(sched, scheduler):
                resolved = resolve_cfg(sched.run_opts(), cfg)
                sched._pre_build_validate(app, scheduler, resolved)
                if strict:
                    from torchx.runner._portability import check_strict

                    check_strict(sched, app, cfg, scheduler)
                if isinstance(sched, WorkspaceMixin):
                    from torchx.runner._building import build_into

                    build_into(sched, app, workspace, resolved)
                _prepare.validate(sched, app, scheduler, resolved)
                info = sched.submit_dryrun(app, resolved)
            info._scheduler = scheduler
            note_app(log, app, None)
            log._torchx_event.app_id = app.name
        return info

    def portability(
        self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> "Sequence[Finding]":
        """Returns what a scheduler would refuse, drop or change of the app; submits nothing."""
        from torchx.runner._portability import findings

        return findings(self._scheduler(scheduler), app, cfg)

    @overload
    def build_workspace(
        self, app_or_role: Role, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> str | None: ...

    @overload
    def build_workspace(
        self, app_or_role: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> dict[tuple[str, Workspace], str]: ...

    def build_workspace(
        self, app_or_role: AppDef | Role, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> str | dict[tuple[str, Workspace], str] | None:
        """Builds the workspaces of an app or a role, which is not changed.

        Returns:
            For a role its built image, ``None`` without a workspace. For an app the built images
            by image and workspace; see ``torchx.workspace.pin_workspace_images``.
        """
        with recorded_call("build_workspace", scheduler):
            sched = self._scheduler(scheduler)
            roles = [app_or_role] if isinstance(app_or_role, Role) else app_or_role.roles
            built: dict[tuple[str, Workspace], str] = {}
            if isinstance(sched, WorkspaceMixin):
                from torchx.runner._building import build_images

                built = build_images(sched, roles, resolve_cfg(sched.run_opts(), cfg))
        if isinstance(app_or_role, Role):
            return next(iter(built.values()), None)
        return built

    # -- looking ------------------------------------------------------------------------------

    def wait(self, app_handle: AppHandle, wait_interval: float = 10) -> AppStatus | None:
        """Waits for the end of the app; logs each change of its state.

        Args:
            wait_interval: seconds between two polls of schedulers that do not report changes.

        Returns:
            The last status; ``None`` if the scheduler does not know the app (any more).

        Raises:
            BackendUnavailable: if the scheduler cannot be reached for ``AWAY_S`` seconds.
        """
        scheduler, app_id, backend = self._find(app_handle)
        from torchx._outages import Outage
        from torchx.runner._watching import Changes, FailureWatch, Pauses

        with recorded_call("wait", backend, app_id):
            pauses = Pauses(scheduler, app_id, wait_interval)
            outage = Outage(backend, AWAY_S)
            failure = FailureWatch(scheduler, app_id)
            explain = scheduler.explain if has_look(scheduler) else None
            changes = Changes(explain, app_id, app_handle)
            while True:
                try:
                    with one_look(fresh=True):
                        status = self.status(app_handle)
                        if status is None or status.is_terminal():
                            outage.over()
                            return status
                        failure.look()
                        changes.note(status)
                except BackendUnavailable as err:
                    outage.note(err)
                    time.sleep(wait_interval)
                    continue
                outage.over()
                pauses.pause(changes.report())

    def describe(self, app_handle: AppHandle) -> AppDef | None:
        """Returns the app as submitted, or what the scheduler knows of it; ``None`` if unknown."""
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("describe", backend, app_id):
            cached = self._apps.get(app_handle)
            try:
                found = scheduler.describe(app_id)
            except BackendUnavailable:
                if cached is None:
                    raise
                return cached
            if found is None:
                self._apps.pop(app_handle, None)
                return None
            return cached or AppDef(name=app_id, roles=found.roles, metadata=found.metadata)

    def describe_native(self, app_handle: AppHandle) -> "AppDryRunInfo[Any] | None":
        """Returns the native request of the app; ``None`` if the scheduler cannot read it back."""
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("describe_native", backend, app_id):
            info = scheduler.describe_native(app_id)
            if info is not None:
                info._scheduler = backend
            return info

    def failed_replicas(
        self, app_handle: AppHandle, max_lines: int = 10
    ) -> "Sequence[FailedReplica]":
        """Returns the failed replicas, first failure first; empty if the scheduler cannot tell."""
        scheduler, app_id, _ = self._find(app_handle)
        find = getattr(scheduler, "failed_replicas", None)
        return find(app_id, max_lines) if find is not None else ()

    def needs_watcher(self, app_handle: AppHandle) -> bool:
        """Returns True if a failure ends the app's other replicas only while ``wait`` watches."""
        scheduler, app_id, _ = self._find(app_handle)
        needs = getattr(scheduler, "needs_watcher", None)  # other packages' schedulers may lack it
        return bool(needs(app_id)) if needs is not None else False

    # last: below this line `list` is the method
    def list(
        self, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> "list[ListAppResponse]":
        """Returns the apps that the scheduler knows, those of other sessions as well."""
        scheduler = self._canonical(scheduler)
        with recorded_call("list", scheduler):
            sched = self._scheduler(scheduler)
            # release 0.7 had no parameter (NeMo-Run's schedulers)
            apps = sched.list(cfg) if _prepare.takes_args(sched.list, cfg) else sched.list()
            for app in apps:
                app.app_handle = make_app_handle(scheduler, self._name, app.app_id)
            return apps


def _if(strict: bool) -> dict[str, bool]:
    """Returns the keyword only if it is set: subclasses may not accept it."""
    return {"strict": True} if strict else {}
