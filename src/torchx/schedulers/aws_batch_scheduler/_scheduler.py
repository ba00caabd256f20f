"""``aws_batch``: runs apps as jobs of AWS Batch."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from torchx._aws.session import AwsService
from torchx._startup.dataclass import replace
from torchx.schedulers._core import records
from torchx.schedulers.api import (
    AppSnapshot,
    LogChunk,
    LogQuery,
    ReplicaKey,
    Scheduler,
    SchedulerFeatures,
    runopts,
)
from torchx.specs.api import AppDef, AppDryRunInfo, CfgVal, RetryPolicy
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from . import _compat
from ._options import Opts, check_options
from ._records import CANCEL_REASON, END_REASON
from ._request import BatchJob, build_request, render_request
from ._states import BatchSnapshot, build_row, build_snapshot
from ._tags import Facts

if TYPE_CHECKING:
    from torchx.schedulers._core.causes import Rule
    from torchx.schedulers._core.checkups import Checkup, Configured

    from ._client import Explanations, JobTable

Home = tuple[str | None, str | None]
"""Region and profile; ``None`` for the user's defaults."""


class AWSBatchScheduler(DockerWorkspaceMixin, Scheduler[Opts]):
    """Runs apps in the queues of an AWS account, which also stores their state.

    Args:
        client: boto3's client for Batch; ``None`` creates one on first use.
        log_client: boto3's client for CloudWatch Logs; ``None`` creates one on first use.
        docker_client: client of Docker's SDK, for images with the user's code.
    """

    features = SchedulerFeatures(
        log_time_range=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.APPLICATION}),
        mounts=True,
        attempts=True,
    )

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        log_client: Any = None,
        docker_client: Any = None,
    ) -> None:
        super().__init__("aws_batch", session_name, docker_client=docker_client)
        self._given = client, log_client
        self._accounts: dict[Home, _Account] = {}
        self._homes: dict[str, Home] = {}
        self._arns: dict[str, str] = {}
        self._asked: dict[str, str] = {}
        """Why the end of an app was requested."""
        self._ticks = _Ticks()

    def _account(self, home: Home = (None, None)) -> "_Account":
        """Returns the services of a region, with the credentials of a profile."""
        if home not in self._accounts:
            self._accounts[home] = _Account(home, *self._given)
        return self._accounts[home]

    @property
    def _client(self) -> Any:
        """The client of Batch."""
        return self._account().batch.client()

    @property
    def _log_client(self) -> Any:
        """The client of CloudWatch Logs."""
        return self._account().logs.client()

    # -- submitting -------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return Opts.as_runopts()

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None:
        super()._pre_build_validate(app, scheduler, cfg)
        if isinstance(cfg, Mapping):
            check_options(Opts.from_cfg(cfg))

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[BatchJob]:
        import copy

        app = copy.copy(app)  # pushed images get other names
        app.roles = [copy.copy(role) for role in app.roles]
        images = self.dryrun_push_images(app, cfg)
        name = app.name if cfg.share_id is None else f"{app.name}-{cfg.share_id}"
        job = build_request(app, _compat.unique_name(name), cfg, Facts(_user(cfg)))
        job.images_to_push = images
        return AppDryRunInfo(job, render_request)

    def schedule(self, dryrun_info: AppDryRunInfo[BatchJob]) -> str:
        """Registers the definition of the job and submits it once; rolls back on failure.

        Raises:
            InvalidInput: if AWS refuses, with its message.
            BackendUnavailable: if it cannot be reached.
        """
        from ._client import submit

        job = dryrun_info.request
        self.push_images(job.images_to_push)
        home = job.region, job.profile
        account = self._account(home)
        arn = submit(account.batch, self._by_digest(job))
        account.jobs.expect(arn)
        self._arns[job.app_id] = arn
        self._homes[job.app_id] = home
        if home != (None, None):
            records.remember(self.backend, job.app_id, {"region": home[0], "profile": home[1]})
        return job.app_id

    def _home(self, app_id: str) -> Home:
        """Returns region and profile that an app was submitted with, from here or another shell."""
        if app_id not in self._homes:
            noted = records.recall(self.backend, app_id) or {}
            region, profile = noted.get("region"), noted.get("profile")
            self._homes[app_id] = str(region) if region else None, str(profile) if profile else None
        return self._homes[app_id]

    def _by_digest(self, job: BatchJob) -> BatchJob:
        """Returns the request with pushed images by digest, which cannot be moved like tags."""
        if not job.images_to_push:
            return job
        import copy

        pushed = copy.deepcopy(job)
        for container in pushed.containers:
            container["image"] = self.pushed_image(container["image"])
        return pushed

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """Returns state and replicas of an app; ``None`` if Batch has no job of it any more."""
        return self._look(app_id)[0]

    def _look(
        self, app_id: str, nodes: Sequence[int] | None = None
    ) -> tuple[BatchSnapshot | None, int]:
        """Returns a snapshot with some or all nodes, and the number of calls."""
        account = self._account(self._home(app_id))
        arn = self._arn(app_id, account)
        looked = account.jobs.look(arn, nodes) if arn is not None else None
        if looked is None:
            self._arns.pop(app_id, None)
            return None, 1
        asked = self._asked.get(app_id, "")
        snapshot = build_snapshot(app_id, looked.job, looked.nodes, asked)
        words = "" if snapshot.message else account.explanations.explain(looked.job)
        return replace(snapshot, message=words) if words else snapshot, looked.calls

    def _arn(self, app_id: str, account: "_Account") -> str | None:
        from ._client import find_app

        if app_id not in self._arns:
            found = find_app(account.batch, app_id)
            if found is None:
                return None
            self._arns[app_id] = found
        return self._arns[app_id]

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """Returns all apps of a queue, or of all queues, latest first."""
        from ._client import list_jobs

        given = cfg or {}
        region, profile, queue = (given.get(name) for name in ("region", "profile", "queue"))
        account = self._account(
            (str(region) if region else None, str(profile) if profile else None)
        )
        for name, job in list_jobs(account.batch, str(queue) if queue else None):
            yield build_row(name, job)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns after the timeout, together with all other waits of this process."""
        self._ticks.wait(timeout_s)

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Returns the checks of what jobs on AWS Batch need."""
        from ._checkups import checkups

        return checkups(lambda *home: self._account(home).batch, configured)

    def cause_rules(self) -> "Sequence[Rule]":
        """Returns the rules for messages of AWS Batch."""
        from ._causes import RULES

        return RULES

    def refusal_rules(self) -> "Sequence[Rule]":
        """Returns the rules for refusals by AWS Batch."""
        from ._causes import REFUSALS

        return REFUSALS

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Requests the end of the job, because a user cancelled it."""
        self._end(_own(snapshot), CANCEL_REASON)

    def end_rest(self, snapshot: AppSnapshot) -> None:
        """Ends the job after a replica has failed."""
        failed = snapshot.fatal
        key = f" {failed.role}/{failed.replica}" if failed is not None else ""
        self._end(_own(snapshot), f"{END_REASON}{key}")

    def _end(self, snapshot: BatchSnapshot, reason: str) -> None:
        from ._client import terminate

        account = self._account(self._home(snapshot.app_id))
        job = snapshot.job or {}
        arn = str(job["jobArn"])
        terminate(account.batch, str(job.get("jobId") or arn), reason)
        account.jobs.forget(arn)
        self._asked[snapshot.app_id] = reason

    def remove(self, snapshot: AppSnapshot) -> None:
        """Ends the job if it runs, and deregisters its definition; Batch keeps the job for days."""
        from ._client import deregister

        if not snapshot.terminal:
            self.end(snapshot)
        definition = (_own(snapshot).job or {}).get("jobDefinition")
        account = self._account(self._home(snapshot.app_id))
        if definition:
            deregister(account.batch, str(definition))

    # -- logs -------------------------------------------------------------------------------

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of these replicas from CloudWatch, by time."""
        from ._logs import read

        account = self._account(self._home(snapshot.app_id))
        return read(
            account.logs,
            _own(snapshot),
            replicas,
            query,
            lambda nodes: self._look(snapshot.app_id, nodes),
        )


class _Account:
    """The services in use, and caches of their responses."""

    def __init__(self, home: Home, client: Any, log_client: Any) -> None:
        region, profile = home
        self.batch = AwsService("batch", region, profile, client)
        self.logs = AwsService("logs", region, profile, log_client)
        self._lock = threading.Lock()
        self._jobs: JobTable | None = None
        self._explanations: Explanations | None = None

    @property
    def jobs(self) -> "JobTable":
        """The cached records of jobs."""
        from ._client import JobTable

        with self._lock:
            self._jobs = self._jobs or JobTable(self.batch)
            return self._jobs

    @property
    def explanations(self) -> "Explanations":
        """The reasons why jobs wait."""
        from ._client import Explanations

        with self._lock:
            self._explanations = self._explanations or Explanations(self.batch)
            return self._explanations


class _Ticks:
    """Synchronizes the polls of all waits, so that one call answers them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self, timeout_s: float) -> None:
        """Returns at the next tick, after that time at the latest."""
        with self._lock:
            now = time.monotonic()
            if not now < self._next <= now + timeout_s:
                self._next = now + timeout_s
            due = self._next
        time.sleep(max(due - time.monotonic(), 0.0))


def _own(snapshot: AppSnapshot) -> BatchSnapshot:
    """Casts the snapshot to the type that ``look`` returns."""
    return cast("BatchSnapshot", snapshot)  # `look` creates no others


def _user(cfg: Opts) -> str:
    """Returns the user of the options, else that of this machine."""
    if cfg.user:
        return cfg.user
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no entry for the user's id, as in containers
        return ""


def create_scheduler(
    session_name: str,
    client: Any = None,
    log_client: Any = None,
    docker_client: Any = None,
    **kwargs: object,
) -> AWSBatchScheduler:
    """Creates the scheduler; unknown keywords are ignored, because all factories get the same."""
    return AWSBatchScheduler(
        session_name, client=client, log_client=log_client, docker_client=docker_client
    )
