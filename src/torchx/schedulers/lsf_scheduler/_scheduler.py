"""The scheduler: builds and submits requests, and finds apps again from any host of the cluster."""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from torchx._home import home_dir
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, TorchXError
from torchx.schedulers._core.snapshot import ReplicaSnapshot
from torchx.schedulers.api import (
    AppDef,
    AppDryRunInfo,
    AppSnapshot,
    CfgVal,
    LogChunk,
    LogQuery,
    ReplicaKey,
    Role,
    Scheduler,
    SchedulerFeatures,
    one_look,
    runopts,
)
from torchx.schedulers.ids import make_unique
from torchx.specs.api import RetryPolicy
from torchx.workspace.api import WorkspaceMixin

from ._job import clean_app_id
from ._options import LsfOpts, check_options
from ._request import Facts, LsfBsub, build_request, runs_on_host

if TYPE_CHECKING:
    from torchx.schedulers.causes import Rule
    from torchx.schedulers.checkups import Checkup, Configured

    from ._apps import Apps
    from ._states import LsfSnapshot

logger = get_logger(__name__)


class LsfScheduler(WorkspaceMixin[None], Scheduler[LsfOpts]):
    """Runs apps with bsub; logs and exit codes are files in a folder that all hosts share."""

    features = SchedulerFeatures(
        separate_streams=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.REPLICA}),
        min_replicas=True,
        event_wait=True,
        attempts=True,
        ends_on_failure=True,
    )

    def __init__(self, session_name: str) -> None:
        super().__init__("lsf", session_name)

    # -- requests ---------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return LsfOpts.as_runopts()

    def _features_with(self, cfg: Any) -> SchedulerFeatures:
        """Adds mounts for containers; without them, `build_request` explains what mounts need.

        A gang is retried as a whole.
        """
        retries = self.features.retries
        if cfg.get("gang"):
            retries = frozenset({RetryPolicy.APPLICATION})
        return replace(self.features, mounts=True, retries=retries)

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """Accepts a role without a resource: the cluster has defaults."""

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None:
        super()._pre_build_validate(app, scheduler, cfg)
        if isinstance(cfg, Mapping):
            check_options(cfg)

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Copies the workspace of a role to ``workspace`` in ``jobdir``, where the role runs.

        Nothing is done without ``jobdir``, and for a role that runs in a container.
        """
        if not role.workspace or cfg.get("jobdir") is None:
            return
        if not runs_on_host(role.image, cfg.get("runtime"), _is_dir(role.image)):
            logger.info("role `%s` runs in a container: its workspace is not copied", role.name)
            return
        # importing it takes longer than showing a status
        from torchx.workspace.dir_workspace import DirWorkspaceMixin

        from . import _notes

        base = os.path.abspath(os.path.expanduser(str(cfg["jobdir"])))
        _notes.make_base(base)
        where = {**cfg, "job_dir": os.path.join(base, "workspace")}
        DirWorkspaceMixin().caching_build_workspace_and_update_role(role, where, build_cache)

    def _submit_dryrun(self, app: AppDef, cfg: LsfOpts) -> AppDryRunInfo[LsfBsub]:
        dirs = frozenset(role.image for role in app.roles if _is_dir(role.image))
        facts = Facts(os.getcwd(), home_dir(), dirs)
        opts = cfg
        if cfg.jobdir is not None:
            opts = replace(cfg, jobdir=os.path.expanduser(cfg.jobdir))
        request = build_request(app, clean_app_id(make_unique(app.name)), opts, facts)
        return AppDryRunInfo(request, repr)

    # -- submitting -------------------------------------------------------------------------

    @functools.cached_property
    def _apps(self) -> "Apps":
        from ._apps import Apps  # all calls and reads: a dry run does neither

        return Apps()

    def schedule(self, dryrun_info: AppDryRunInfo[LsfBsub]) -> str:
        """Writes the folder of the app, submits its jobs, and returns its id.

        Raises:
            JobStartError: if LSF refuses a job, with its message; all jobs are rolled back.
            BackendUnavailable: if LSF cannot be reached.
            InvalidInput: if the folder cannot be written.
        """
        self._apps.submit(dryrun_info.request)
        return dryrun_info.request.app_id

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """Returns a snapshot from LSF and the app's own notes; ``None`` if the app is unknown."""
        return self._apps.look(app_id)

    def look_for_logs(self, app_id: str) -> AppSnapshot | None:
        """Returns a snapshot without querying LSF, if the folder of the app has its roles."""
        return self._apps.look_at_notes(app_id) or self.snapshot(app_id)

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """Returns this user's apps that bjobs knows, latest first."""
        return self._apps.look_all()

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the app has new notes, or when LSF may have changes."""
        self._apps.wait_for_change(app_id, timeout_s)

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Returns the checks of what jobs on LSF need."""
        from ._checkups import checkups

        return checkups(configured)

    def cause_rules(self) -> "Sequence[Rule]":
        """Returns the rules for LSF's messages."""
        from ._causes import RULES

        return RULES

    def refusal_rules(self) -> "Sequence[Rule]":
        """Returns the rules for refusals by LSF."""
        from ._causes import REFUSALS

        return REFUSALS

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Requests the end of all jobs of the app, and notes that a user cancelled it."""
        self._apps.end(_own(snapshot), "cancelled")

    def end_many(self, snapshots: Sequence[AppSnapshot]) -> Mapping[str, TorchXError]:
        """Calls bkill once for all; if it refuses, once for each, to find out which."""
        try:
            self._apps.end_many([_own(snapshot) for snapshot in snapshots], "cancelled")
        except InvalidInput:
            return super().end_many(snapshots)
        return {}

    def remove_many(self, snapshots: Sequence[AppSnapshot]) -> Mapping[str, TorchXError]:
        """Ends the running apps; LSF decides how long it keeps records."""
        return self.end_many([snapshot for snapshot in snapshots if not snapshot.terminal])

    def end_rest(self, snapshot: AppSnapshot) -> None:
        """Ends the other replicas of an app after one has failed."""
        self._apps.end(_own(snapshot), "ending")

    def end_after_failure(self, app_id: str) -> ReplicaSnapshot | None:
        """Ends the rest of the app, also if the failed job could not, without bkill on its host."""
        with one_look():
            failed = super().end_after_failure(app_id)
            found = self.snapshot(app_id) if failed is not None else None
            if found is not None:
                notes = _own(found).view.notes
                if notes.unended or not notes.ending:
                    self.end_rest(found)
        return failed

    # -- logs -------------------------------------------------------------------------------

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of all these replicas, without times; stdout comes before stderr.

        While following, lines are yielded as they are written.
        """
        return self._apps.read_logs(_own(snapshot), replicas, query)


def _own(snapshot: AppSnapshot) -> "LsfSnapshot":
    """Casts the snapshot to the type that ``look`` returns."""
    return cast("LsfSnapshot", snapshot)  # `look` creates no others


def _is_dir(image: str) -> bool:
    return bool(image) and os.path.isdir(image)


def create_scheduler(session_name: str, **kwargs: object) -> LsfScheduler:
    """Creates the scheduler; unknown keywords are ignored, because all factories get the same."""
    return LsfScheduler(session_name)
