"""``local_docker``: runs the replicas of an app as containers of a Docker daemon."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx._docker import connect
from torchx.schedulers.api import (
    AppSnapshot,
    ExecRequest,
    LogChunk,
    LogQuery,
    ReplicaKey,
    ReplicaSnapshot,
    Scheduler,
    SchedulerFeatures,
)
from torchx.specs.api import AppDef, AppDryRunInfo, CfgVal, RetryPolicy, runopts
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from . import _ending, _follow, _logs
from ._client import Daemon
from ._compat import SdkContainers, unique_app_id
from ._events import EventCursor, wait_for_event
from ._launch import launch
from ._options import Opts
from ._render import render_request
from ._request import LABEL_APP_ID, DockerJob, build_request

if TYPE_CHECKING:
    from torchx.schedulers.causes import Rule
    from torchx.schedulers.checkups import Checkup, Configured


class DockerScheduler(SdkContainers, DockerWorkspaceMixin, Scheduler[Opts]):
    """Runs apps on the local Docker daemon, which also stores their state.

    Args:
        docker_client: client of Docker's SDK; ``None`` creates one from the environment on first
            use.
    """

    features = SchedulerFeatures(
        separate_streams=True,
        log_time_range=True,
        delete_forgets=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.REPLICA}),
        mounts=True,
        event_wait=True,
        execute=True,
    )
    # images built by this daemon need no registry
    _runs_elsewhere = False
    # of the class, for schedulers that are made without `__init__` (NeMo-Run)
    _given_client: Any = None
    _own_client: Any = None
    _known_daemon: Daemon | None = None

    def __init__(self, session_name: str, docker_client: Any = None) -> None:
        super().__init__("docker", session_name, docker_client=docker_client)
        self._given_client = docker_client

    @property
    def _docker_client(self) -> Any:
        given = self._given_client or vars(self).get("_DockerWorkspaceMixin__docker_client")
        if given is not None:
            return given
        if self._own_client is None:
            self._own_client = connect()
        return self._own_client

    @property
    def _daemon(self) -> Daemon:
        client = self._docker_client
        if self._known_daemon is None or self._known_daemon.client is not client:
            self._known_daemon = Daemon(client)
        return self._known_daemon

    def close(self) -> None:
        """Closes connections; they are opened again when needed."""
        client, self._own_client = self._own_client, None
        if client is not None:
            client.close()

    # -- submitting -------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return Opts.as_runopts()

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """Accepts a role without a resource: its containers have no limits."""

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[DockerJob]:
        opts = cfg if isinstance(cfg, Opts) else Opts()  # a client's own object (NeMo-Run)
        job = build_request(app, unique_app_id(app.name), opts, os.environ)
        job.images_to_push = self.planned_images(app)
        job.quiet = bool(opts.get("quiet"))
        return AppDryRunInfo(job, render_request)

    def schedule(self, dryrun_info: AppDryRunInfo[DockerJob]) -> str:
        """Starts every container, or none; returns when all are running.

        Raises:
            JobStartError: if an image is missing, or Docker refuses a container.
            BackendUnavailable: if no daemon can be reached.
        """
        job = dryrun_info.request
        self.push_images(job.images_to_push)
        launch(self._daemon, job)
        return job.app_id

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """Returns state and replicas of an app; ``None`` if it has no containers."""
        return self._daemon.look(app_id)

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """Returns all apps of this daemon, latest first."""
        return self._daemon.look_all()

    def look_many(self, app_ids: Sequence[str]) -> Mapping[str, AppSnapshot]:
        """Queries one app by itself, and several with the list of all."""
        if len(app_ids) < 2:
            return super().look_many(app_ids)
        wanted = {*app_ids}
        return {app.app_id: app for app in self._daemon.look_all() if app.app_id in wanted}

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns after the next event of a container, at the latest after the timeout."""
        daemon = self._daemon
        cursor = daemon.cursors.setdefault(app_id, EventCursor(time.time_ns()))
        wait_for_event(daemon, {"label": f"{LABEL_APP_ID}={app_id}"}, cursor, timeout_s)

    def wait_for_any_change(self, timeout_s: float) -> None:
        """Returns after the next event of any container of TorchX."""
        daemon = self._daemon
        cursor = daemon.cursors.setdefault("", EventCursor(time.time_ns()))
        wait_for_event(daemon, {"label": LABEL_APP_ID}, cursor, timeout_s)

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of these replicas by time; attempts of a replica are not separated."""
        return _follow.read_logs(self._daemon, _logs.sources_of(snapshot, replicas), query)

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Returns the checks of what jobs in containers need."""
        from ._checkups import checkups

        return checkups(configured)

    def cause_rules(self) -> "Sequence[Rule]":
        """Returns the rules for Docker's messages."""
        from ._causes import RULES

        return RULES

    def refusal_rules(self) -> "Sequence[Rule]":
        """Returns the rules for refusals by Docker."""
        from ._causes import REFUSALS

        return REFUSALS

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Ends an app that a user cancelled: SIGTERM, and SIGKILL after a grace period."""
        _ending.end(self._daemon, snapshot, "cancelled")

    def end_rest(self, snapshot: AppSnapshot) -> None:
        """Ends the other replicas in the same way, without the mark of a cancel."""
        _ending.end(self._daemon, snapshot, "failed")

    def remove(self, snapshot: AppSnapshot) -> None:
        """Ends the containers if they run, and removes them, and the network with the last."""
        _ending.remove(self._daemon, snapshot)

    # -- inside a replica -------------------------------------------------------------------

    def execute(self, snapshot: AppSnapshot, replica: ReplicaSnapshot, request: ExecRequest) -> int:
        """Runs a command in the container of the replica."""
        from ._execute import execute

        return execute(self._docker_client, replica.native_id, request)


def create_scheduler(session_name: str, **kwargs: object) -> DockerScheduler:
    """Creates the scheduler; unknown keywords are ignored, because all factories get the same."""
    return DockerScheduler(session_name)
