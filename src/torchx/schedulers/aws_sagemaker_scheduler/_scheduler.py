"""``aws_sagemaker``: runs the role of an app as a training job of Amazon SageMaker."""

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx.schedulers._core.records import recall, remember
from torchx.schedulers.api import (
    AppSnapshot,
    LogChunk,
    LogQuery,
    ReplicaKey,
    Scheduler,
    SchedulerFeatures,
)
from torchx.specs.api import AppDef, AppDryRunInfo, CfgVal, Role, runopts
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from ._args import parse_args
from ._compat import PublishedMethods, unique_name
from ._names import job_name, run_name
from ._options import Opts, check_options
from ._request import AWSSageMakerJob, build_request
from ._states import parse_job, parse_row

if TYPE_CHECKING:
    from torchx.schedulers._core.causes import Rule
    from torchx.schedulers.checkups import Checkup, Configured

    from ._client import Api

BACKEND = "aws_sagemaker"

_Home = tuple[str | None, str | None]
"""Region and profile; ``None`` for the user's defaults."""


class AWSSageMakerScheduler(PublishedMethods, DockerWorkspaceMixin, Scheduler[Opts]):
    """Runs apps of one role as training jobs.

    Args:
        client: boto3's client for ``sagemaker``; ``None`` creates one on first use.
        docker_client: client of Docker's SDK, for images with the user's code.
    """

    features = SchedulerFeatures(
        log_time_range=True,
        durable=True,
        multi_role=False,
        ends_on_failure=True,
    )

    def __init__(self, session_name: str, client: Any = None, docker_client: Any = None) -> None:
        super().__init__(BACKEND, session_name, docker_client=docker_client)
        self._given_client = client
        self._apis: dict[_Home, Api] = {}
        self._homes: dict[str, _Home] = {}

    # -- where ------------------------------------------------------------------------------

    def _api(self, app_id: str | None = None) -> "Api":
        """Returns the calls for the region of an app, by default the user's."""
        if app_id is not None and app_id not in self._homes:
            noted = recall(BACKEND, app_id) or {}
            self._homes[app_id] = _text(noted.get("region")), _text(noted.get("profile"))
        return self._api_of(self._homes[app_id] if app_id is not None else (None, None))

    def _api_of(self, home: _Home) -> "Api":
        from ._client import Api  # a dry run calls nothing

        # threads may be the first at once
        return self._apis.get(home) or self._apis.setdefault(
            home, Api(*home, client=self._given_client)
        )

    # -- requests ---------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return Opts.as_runopts()

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """Accepts a role without a resource: the option ``instance_type`` determines it."""

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None:
        super()._pre_build_validate(app, scheduler, cfg)
        if isinstance(cfg, Mapping):
            check_options(cfg)

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Builds the workspace into the image, unless it is the source of a script."""
        if goes_as_source(cfg):
            return
        super().caching_build_workspace_and_update_role(role, cfg, build_cache)

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[AWSSageMakerJob]:
        app = copy.copy(app)  # a pushed image gets another name
        app.roles = [copy.copy(role) for role in app.roles]
        images = self.dryrun_push_images(app, cfg)
        program = app.name
        if cfg.launch != "container":
            program, _ = parse_args(app.roles[0].args)
        name = job_name(unique_name(cfg.base_job_name or run_name(app.name, program)))
        job = build_request(app, name, cfg, _own_source(app.roles[0], cfg))
        job.images_to_push = images
        if job.source is not None:
            from ._source import check_source

            check_source(job.source)
        return AppDryRunInfo(job, str)

    # -- submitting -------------------------------------------------------------------------

    def schedule(self, dryrun_info: AppDryRunInfo[AWSSageMakerJob]) -> str:
        """Pushes the image, uploads the source, creates the job once, and returns its name.

        Raises:
            JobStartError: if another job has the name.
            AwsRefused: if AWS refuses, with its message.
            BackendUnavailable: if it cannot be reached.
        """
        job = dryrun_info.request
        self.push_images(job.images_to_push)
        home = (job.region, job.profile)
        self._api_of(home).submit(self._by_digest(job))
        self._homes[job.job_name] = home
        if home != (None, None):
            remember(BACKEND, job.job_name, {"region": job.region, "profile": job.profile})
        return job.job_name

    def _by_digest(self, job: AWSSageMakerJob) -> AWSSageMakerJob:
        """Returns the request with a pushed image by digest, which cannot be moved like a tag."""
        if not job.images_to_push:
            return job
        pushed = copy.deepcopy(job)
        algorithm = pushed.job_def["AlgorithmSpecification"]
        algorithm["TrainingImage"] = self.pushed_image(algorithm["TrainingImage"])
        return pushed

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """Returns the state of a job; ``None`` if there is none of that name."""
        record = self._get_job(app_id)
        return parse_job({"TrainingJobName": app_id, **record}) if record is not None else None

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """Returns all jobs of TorchX in a region, latest first."""
        given = cfg or {}
        api = self._api_of((_text(given.get("region")), _text(given.get("profile"))))
        return [parse_row(record) for record in api.search()]

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Waits; among many awaited jobs, only changed ones are described again."""
        self._api(app_id).wait(app_id, timeout_s)

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of these instances by time."""
        from ._logs import read_logs

        return read_logs(self._api(snapshot.app_id), snapshot, replicas, query)

    def cause_rules(self) -> "Sequence[Rule]":
        """Returns the rules for messages of SageMaker."""
        from ._causes import RULES

        return RULES

    def refusal_rules(self) -> "Sequence[Rule]":
        """Returns the rules for refusals by SageMaker."""
        from ._causes import REFUSALS

        return REFUSALS

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Returns the checks of what training jobs need."""
        from ._checkups import checkups

        return checkups(lambda *home: self._api_of(home).jobs, configured)

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Requests the end of the job; its record is kept by SageMaker."""
        self._api(snapshot.app_id).stop(snapshot.app_id)


def goes_as_source(cfg: Mapping[str, CfgVal]) -> bool:
    """Returns True if the workspace is the source of a script: without a repository for images."""
    return cfg.get("launch") != "container" and not cfg.get("image_repo")


def _own_source(role: Role, cfg: Mapping[str, CfgVal]) -> Mapping[str, str]:
    """Returns the directories sent along with a script if no option names one."""
    if role.workspace and goes_as_source(cfg):
        return role.workspace.projects
    return {os.getcwd(): ""}


def _text(value: object) -> str | None:
    return str(value) if value else None


def create_scheduler(
    session_name: str, client: Any = None, docker_client: Any = None, **kwargs: object
) -> AWSSageMakerScheduler:
    """Creates the scheduler; unknown keywords are ignored, because all factories get the same."""
    return AWSSageMakerScheduler(session_name, client=client, docker_client=docker_client)
