"""``slurm``: runs apps as batch jobs of a Slurm cluster."""

import copy
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx.errors import InvalidInput, TorchXError
from torchx.schedulers._core.logs import LogChunk, LogQuery
from torchx.schedulers._core.snapshot import AppSnapshot, ReplicaKey, ReplicaSnapshot
from torchx.schedulers.api import ExecRequest, Scheduler, SchedulerFeatures
from torchx.specs.api import (
    AppDef,
    AppDryRunInfo,
    CfgVal,
    RetryPolicy,
    Role,
    runopts,
)
from torchx.workspace import _copies
from torchx.workspace.api import MultiWorkspaceMixin, WorkspaceMixin

from . import _client
from ._compat import SingleQuestions, ask_facts
from ._options import SlurmOpts, check_options
from ._request import SlurmBatchRequest, build_request, check_role, with_images
from ._states import SlurmSnapshot

if TYPE_CHECKING:
    from torchx.schedulers.causes import Rule
    from torchx.schedulers.checkups import Checkup, Configured

    from ._apps import Apps


class SlurmScheduler(MultiWorkspaceMixin, SingleQuestions, Scheduler[SlurmOpts]):
    """Runs apps with sbatch and finds them again from any machine of the cluster.

    Args:
        docker_client: client for the ``docker`` workspace builder; created when needed.
    """

    features = SchedulerFeatures(
        separate_streams=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.APPLICATION}),
        left_out=frozenset({"devices"}),
        min_replicas=True,
        event_wait=True,
        attempts=True,
        ends_on_failure=True,
        execute=True,
    )

    def __init__(self, session_name: str, docker_client: object = None) -> None:
        super().__init__("slurm", session_name)
        self._docker_client = docker_client
        self._made_builders: Mapping[str, WorkspaceMixin[Any]] | None = None

    # -- requests ---------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return SlurmOpts.as_runopts()

    def workspace_builders(self) -> Mapping[str, WorkspaceMixin[Any]]:
        """Returns the builders by the value of ``workspace_type``, the default first."""
        if self._made_builders is None:
            # importing them takes longer than showing a status
            from torchx.workspace.dir_workspace import DirWorkspaceMixin
            from torchx.workspace.docker_workspace import DockerWorkspaceMixin

            self._made_builders = {
                "dir": DirWorkspaceMixin(),
                "docker": DockerWorkspaceMixin(docker_client=self._docker_client),
            }
        return self._made_builders

    def _features_with(self, cfg: Any) -> SchedulerFeatures:
        return self._with_mounts

    @functools.cached_property
    def _with_mounts(self) -> SchedulerFeatures:
        """The features with mounts, for containers; `check_role` explains what mounts need."""
        return replace(self.features, mounts=True)

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """Accepts a role without a resource: the cluster has defaults."""

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None:
        super()._pre_build_validate(app, scheduler, cfg)
        if isinstance(cfg, Mapping):
            check_options(cfg)
        for role in app.roles:
            check_role(role, in_container=True)

    def _submit_dryrun(self, app: AppDef, cfg: SlurmOpts) -> AppDryRunInfo[SlurmBatchRequest]:
        builder, _ = self.workspace_builder(cfg)
        # the names of images to push are set in the roles
        named = copy.copy(app)
        named.roles = [copy.copy(role) for role in app.roles]
        images = self.dryrun_push_images(named, cfg)
        job_dir = cfg.get("job_dir")
        work_dirs = _copies_in(named.roles, str(job_dir)) if builder == "dir" and job_dir else {}
        partition = cfg.get("partition")
        facts = ask_facts(
            str(partition).partition(",")[0] if partition else None,
            memory=any(role.resource.memMB > 0 for role in app.roles),
            gpus=any(role.resource.gpu > 0 for role in app.roles),
        )
        request = build_request(named, cfg, facts, builder, images, work_dirs)
        return AppDryRunInfo(request, repr)

    # -- submitting -------------------------------------------------------------------------

    @functools.cached_property
    def _apps(self) -> "Apps":
        from ._apps import Apps  # submits, queries and reads: a dry run does none of it

        return Apps()

    def schedule(self, dryrun_info: AppDryRunInfo[SlurmBatchRequest]) -> str:
        """Submits the job and returns its id.

        Raises:
            JobStartError: if Slurm refuses it, with its message.
            BackendUnavailable: if Slurm cannot be reached.
            InvalidInput: if the job could not write into its directory.
        """
        request = dryrun_info.request
        if request.images_to_push is not None:
            self.push_images(request.images_to_push)
            _, builder = self.workspace_builder(
                {self.WORKSPACE_TYPE_OPT: request.images_to_push[0]}
            )
            # a tag can be moved to another image before the job starts
            request = with_images(request, builder.pushed_image)
        return self._apps.submit(request)

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """Returns the snapshot of a job from Slurm and its own notes; ``None`` if it is unknown."""
        return self._apps.look(app_id)

    def look_for_logs(self, app_id: str) -> AppSnapshot | None:
        """Returns a snapshot without querying Slurm, if the notes of the job have its roles."""
        return self._apps.look_at_notes(app_id) or self.snapshot(app_id)

    def _cluster(self, app_id: str) -> str:
        return self._apps.cluster(app_id)

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """Returns this user's TorchX jobs of the last two weeks, latest first."""
        return self._apps.look_all()

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the job has new notes, or when Slurm may have changes."""
        self._apps.wait_for_change(app_id, timeout_s)

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Returns the checks of what jobs on Slurm need."""
        from ._checkups import checkups

        return checkups(configured)

    def cause_rules(self) -> "Sequence[Rule]":
        """Returns the rules for Slurm's messages."""
        from ._causes import RULES

        return RULES

    def refusal_rules(self) -> "Sequence[Rule]":
        """Returns the rules for refusals by Slurm."""
        from ._causes import REFUSALS

        return REFUSALS

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Requests the end of the job from Slurm."""
        job_dir = snapshot.job_dir if isinstance(snapshot, SlurmSnapshot) else None
        _client.cancel([snapshot.app_id], job_dir.cluster if job_dir is not None else "")

    def look_many(self, app_ids: Sequence[str]) -> Mapping[str, AppSnapshot]:
        """Queries squeue once, and sacct once for all that it does not know."""
        from ._apps import is_job_id

        ids = [app_id for app_id in dict.fromkeys(app_ids) if is_job_id(app_id)]
        self._apps.ask_about(ids)
        return super().look_many(ids)

    def end_many(self, snapshots: Sequence[AppSnapshot]) -> Mapping[str, TorchXError]:
        """Calls scancel once for all; if it refuses, once for each, to find out which."""
        clusters: dict[str, list[AppSnapshot]] = {}
        for app in snapshots:
            clusters.setdefault(self._cluster(app.app_id), []).append(app)
        errors: dict[str, TorchXError] = {}
        for cluster, own in clusters.items():
            try:
                _client.cancel([app.app_id for app in own], cluster)
            except InvalidInput:
                errors.update(super().end_many(own))
        return errors

    def remove_many(self, snapshots: Sequence[AppSnapshot]) -> Mapping[str, TorchXError]:
        """Ends the running jobs; Slurm decides how long it keeps records."""
        return self.end_many([app for app in snapshots if not app.terminal])

    # -- inside a replica -------------------------------------------------------------------

    def execute(self, snapshot: AppSnapshot, replica: ReplicaSnapshot, request: ExecRequest) -> int:
        """Runs a command in a separate step, with the environment of the replica."""
        from ._execute import execute

        assert isinstance(snapshot, SlurmSnapshot)  # `look` creates no others
        return execute(snapshot, replica, request)

    # -- logs -------------------------------------------------------------------------------

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of all these replicas, without times; stdout comes before stderr.

        While following, lines are yielded as they are written.
        """
        assert isinstance(snapshot, SlurmSnapshot)  # `look` makes no others
        return self._apps.read_logs(snapshot, replicas, query)


def _copies_in(roles: list[Role], job_dir: str) -> dict[str, str]:
    """Returns the working directories of roles with another workspace than the ``job_dir``, by
    name.

    The images of roles with a copy become absolute paths: the job runs in the ``job_dir``, where a
    relative path would be another one.
    """
    top = os.path.abspath(os.path.expanduser(job_dir))
    found = {}
    for role in roles:
        path = os.path.abspath(os.path.expanduser(role.image))
        inside = path.startswith(os.path.join(top, ""))
        if role.workspace or (role.image and inside and _is_copy(path)):
            role.image = path
            if inside:
                found[role.name] = path
    return found


def _is_copy(path: str) -> bool:
    """Returns True for a copy of a workspace that was built before and removed from its role."""
    return os.path.isdir(path) and _copies.is_copy(path)


def create_scheduler(
    session_name: str, docker_client: object = None, **kwargs: object
) -> SlurmScheduler:
    """Creates the scheduler; unknown keywords are ignored, because all factories get the same."""
    return SlurmScheduler(session_name, docker_client)
