"""``local_docker``: runs the replicas of an app as containers of a Docker daemon."""

import builtins
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx.errors import LogsNotFound, UnsupportedRequest
from torchx.schedulers._tracebacks import is_consequence
from torchx.schedulers.api import (
    DescribeAppResponse,
    FailedReplica,
    ListAppResponse,
    LogBlock,
    Scheduler,
    SchedulerFeatures,
    Stream,
)
from torchx.specs.api import (
    AppDef,
    AppDryRunInfo,
    AppState,
    CfgVal,
    RetryPolicy,
    is_terminal,
    runopts,
)
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from . import _client, _logs, _states
from ._options import Opts
from ._request import (
    LABEL_APP_ID,
    LABEL_REPLICA_ID,
    LABEL_ROLE_NAME,
    DockerJob,
    build_request,
    render_request,
)

if TYPE_CHECKING:
    from datetime import datetime


class DockerScheduler(DockerWorkspaceMixin, Scheduler[Opts]):
    """Runs apps on the local Docker daemon, which also keeps all that is known of them.

    Args:
        docker_client: of Docker's SDK; ``None`` for one from the environment, made on first use.
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
    )
    # an image that this daemon has built need not go through a registry
    _runs_elsewhere = False

    def __init__(self, session_name: str, docker_client: Any = None) -> None:
        super().__init__("docker", session_name, docker_client=docker_client)
        self._given_client = docker_client
        self._own_client: Any = None
        self._known_daemon: _client.Daemon | None = None
        self._events: dict[str, _client.EventCursor] = {}
        """What is known by app, so that no event is missed between two waits."""
        self._retried: dict[str, bool] = {}
        """By container of replica 0: whether its role has retries, which does not change."""

    @property
    def _docker_client(self) -> Any:
        if self._given_client is not None:
            return self._given_client
        if self._own_client is None:
            self._own_client = _client.connect()
        return self._own_client

    def _daemon(self) -> _client.Daemon:
        client = self._docker_client
        if self._known_daemon is None or self._known_daemon.client is not client:
            self._known_daemon = _client.Daemon(client)
        return self._known_daemon

    # -- requests ---------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return Opts.as_runopts()

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """A role without a resource is accepted: its containers have no limits."""

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[DockerJob]:
        import torchx.schedulers.docker_scheduler as package

        app_id = package.make_unique(app.name)  # clients replace that name to get stable ids
        job = build_request(app, app_id, _as_opts(cfg), os.environ)
        job.images_to_push = self.planned_images(app)
        job.quiet = isinstance(cfg, Mapping) and bool(cfg.get("quiet"))
        return AppDryRunInfo(job, render_request)

    # -- submitting -------------------------------------------------------------------------

    def schedule(self, dryrun_info: AppDryRunInfo[DockerJob]) -> str:
        """Starts every container, or none; returns once all run.

        Raises:
            JobStartError: if an image is missing, or Docker refuses a container.
            BackendUnavailable: if no daemon can be reached.
        """
        from ._launch import launch

        job = dryrun_info.request
        self.push_images(job.images_to_push)
        launch(self._daemon(), job)
        return job.app_id

    # -- looking ----------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """State and replicas of an app; ``None`` if there are no containers of it."""
        looked_ns = time.time_ns()
        daemon = self._daemon()
        containers = daemon.containers(app_id)
        if not containers:
            self._events.pop(app_id, None)
            return None
        if app_id not in self._events:
            self._events[app_id] = _client.EventCursor(looked_ns - _client.EVENT_LAG_NS)
        roles = _states.by_role(containers)
        details = self._details(daemon, roles)
        cancelled = _cancelled(daemon, app_id, containers)
        images = {}
        for image_id in dict.fromkeys(c.image_id for c in containers):
            name = daemon.image_name(image_id)
            if name is not None:
                images[image_id] = name
        response = _states.build_response(app_id, roles, details, cancelled, images)
        if response.state is AppState.FAILED:
            failed = _failed(roles, details, cancelled)
            printed = _printed_error(daemon, failed)
            if printed is not None:
                response.structured_error_msg = printed
        return response

    def _details(
        self, daemon: _client.Daemon, roles: "Mapping[str, Sequence[_states.Container]]"
    ) -> "dict[str, _states.Details]":
        """Records of the containers that failed, and of all of a role with retries."""
        found: dict[str, _states.Details] = {}
        wanted: list[str] = []
        for containers in roles.values():
            first = containers[0].id
            if first not in self._retried:
                known = daemon.details(first)
                self._retried[first] = known is not None and known.max_restarts > 0
            retried = self._retried[first]
            wanted += [c.id for c in containers if retried or (c.ended and c.exit_code != 0)]
        for container_id, known in zip(
            wanted, _client.in_parallel(daemon.details, wanted), strict=True
        ):
            if known is not None:
                found[container_id] = known
        return found

    def exists(self, app_id: str) -> bool:
        """Whether there are containers of the app."""
        return bool(self._daemon().containers(app_id))

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> "list[ListAppResponse]":
        """All apps of this daemon, the latest first."""
        daemon = self._daemon()
        apps: dict[str, list[_states.Container]] = {}
        for container in daemon.containers():
            apps.setdefault(container.app_id, []).append(container)
        ended = any(c.status != "running" for containers in apps.values() for c in containers)
        cancelled = daemon.cancelled() if ended else {}
        rows = []
        for app_id, containers in apps.items():
            marked = cancelled.get(app_id, frozenset())
            states = [
                _states.container_state(c, marked)
                for replicas in _states.by_role(containers).values()
                for c in replicas
            ]
            name = app_id.rpartition("-")[0] or app_id
            rows.append(ListAppResponse(app_id, _states.app_state(states), name=name))
        return rows

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns as soon as something happened to a container, at the latest after the time."""
        cursor = self._events.setdefault(app_id, _client.EventCursor(time.time_ns()))
        filters = {"label": f"{LABEL_APP_ID}={app_id}"}
        self._daemon().wait_for_event(filters, cursor, timeout_s)

    # -- ending -----------------------------------------------------------------------------

    def _cancel_existing(self, app_id: str) -> None:
        """Asks the daemon to end the containers: SIGTERM, and SIGKILL after their grace period."""
        daemon = self._daemon()
        live = [c for c in daemon.containers(app_id) if not c.ended]
        if not live or daemon.cancelled(app_id):
            daemon.stop_all(live)
            return
        daemon.mark_cancelled(app_id, live)
        if not daemon.stop_all(live):
            daemon.unmark_cancelled(app_id)  # all had ended by themselves in the meantime

    def _delete_existing(self, app_id: str) -> None:
        """Ends the containers if they run, and removes them, and the network with the last."""
        daemon = self._daemon()
        live = [c for c in daemon.containers(app_id) if not c.ended]
        daemon.stop_all(live)
        _client.in_parallel(lambda c: daemon.wait_for_end(c.id), live)
        daemon.remove_all(app_id)
        daemon.unmark_cancelled(app_id)
        daemon.remove_network()

    def close(self) -> None:
        """Closes connections; they are opened again when needed."""
        client, self._own_client = self._own_client, None
        if client is not None:
            client.close()

    # -- logs -------------------------------------------------------------------------------

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Lines of one replica, those of all its attempts in order.

        Raises:
            LogsNotFound: (a ``RuntimeError``) if there is no such app, role or replica.
        """
        blocks = self.log_blocks(
            app_id,
            [(role_name, k)],
            regex=regex,
            since=since,
            until=until,
            should_tail=should_tail,
            streams=streams,
        )
        return _logs.lines_of(blocks)

    def log_blocks(
        self,
        app_id: str,
        replicas: "Sequence[tuple[str, int]] | None" = None,
        *,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        attempt: int | None = None,
    ) -> Iterator[LogBlock]:
        """What several replicas printed, in the order of time. See ``log_iter`` for errors."""
        if attempt is not None:
            msg = "Docker keeps the logs of all attempts of a replica as one: leave out `attempt`"
            raise UnsupportedRequest(msg)
        daemon = self._daemon()
        sources = _sources(app_id, daemon.containers(app_id), replicas)
        stream = Stream(streams) if streams is not None else Stream.COMBINED
        query = _logs.Query(stream, _to_ns(since), _to_ns(until))
        if not should_tail:
            blocks = _logs.read_merged(daemon, sources, query)
        elif len(sources) == 1:
            blocks = _logs.follow_one(daemon, sources[0], query)
        else:
            blocks = _logs.follow_merged(daemon, sources, query)
        if regex is None:
            return blocks
        from torchx.schedulers._log_filter import blocks_matching

        return blocks_matching(blocks, regex)

    def failed_replicas(self, app_id: str, max_lines: int = 10) -> "builtins.list[FailedReplica]":
        """The replicas that failed, the first failure first."""
        daemon = self._daemon()
        containers = daemon.containers(app_id)
        if not containers:
            return []
        roles = _states.by_role(containers)
        details = self._details(daemon, roles)
        cancelled = _cancelled(daemon, app_id, containers)
        failed = _failed(roles, details, cancelled)
        return [
            FailedReplica(
                role=c.role,
                replica=c.replica,
                attempt=known.restarts,
                exit_code=known.exit_code,
                reason=_states.describe_exit(known),
                log_path=None,
                last_lines=_logs.last_lines(
                    daemon, _logs.Source(c.id, c.role, c.replica, 0), max_lines
                ),
            )
            for known, c in failed
        ]

    # -- names that clients use (NeMo-Run) --------------------------------------------------

    def _get_containers(self, app_id: str) -> "builtins.list[Any]":
        """The SDK's containers of an app, in any state."""
        client = self._docker_client
        with _client.errors_of("list containers"):
            found: list[Any] = client.containers.list(
                all=True, filters={"label": f"{LABEL_APP_ID}={app_id}"}
            )
        return found

    def _get_container(self, app_id: str, role: str, replica_id: int) -> Any:
        """The SDK's container of one replica; ``None`` if there is none."""
        client = self._docker_client
        labels = [
            f"{LABEL_APP_ID}={app_id}",
            f"{LABEL_ROLE_NAME}={role}",
            f"{LABEL_REPLICA_ID}={replica_id}",
        ]
        with _client.errors_of("list containers"):
            found = client.containers.list(all=True, filters={"label": labels})
        if len(found) > 1:
            raise LogsNotFound(_several(app_id, role, replica_id))
        return found[0] if found else None

    def _get_app_state(self, container: Any) -> AppState:
        """State of a container of the SDK."""
        if container.status == "exited":
            code = container.wait(timeout=10)["StatusCode"]
            return AppState.SUCCEEDED if code == 0 else AppState.FAILED
        return _states.CONTAINER_STATE.get(container.status, AppState.UNKNOWN)


_SEARCHED_REPLICAS = 8
"""In how many failed replicas the cause is looked for."""


def _as_opts(cfg: object) -> Opts:
    if isinstance(cfg, Opts):
        return cfg
    if not isinstance(cfg, Mapping):
        return Opts()  # a client's own object in its place (NeMo-Run)
    return Opts.from_cfg({k: v for k, v in cfg.items() if v is not None})


def _cancelled(
    daemon: _client.Daemon, app_id: str, containers: "Sequence[_states.Container]"
) -> "frozenset[str]":
    """Short ids of the cancelled containers; asked for only where it can matter."""
    if all(is_terminal(_states.container_state(c)) or c.status == "created" for c in containers):
        return daemon.cancelled(app_id).get(app_id, frozenset())
    return frozenset()


def _failed(
    roles: "Mapping[str, Sequence[_states.Container]]",
    details: "Mapping[str, _states.Details]",
    cancelled: "frozenset[str]",
) -> "list[tuple[_states.Details, _states.Container]]":
    """The failed replicas whose records are there, the first failure first."""
    failed = [
        (details[c.id], c)
        for replicas in roles.values()
        for c in replicas
        if c.id in details and _states.container_state(c, cancelled) is AppState.FAILED
    ]
    failed.sort(key=lambda item: item[0].finished)
    return failed


def _printed_error(
    daemon: _client.Daemon, failed: "Sequence[tuple[_states.Details, _states.Container]]"
) -> str | None:
    """The first traceback that is no consequence of another failure; ``None`` if there is none."""
    if not failed or failed[0][0].oom_killed:
        return None
    found = []
    for known, c in failed[:_SEARCHED_REPLICAS]:
        source = _logs.Source(c.id, c.role, c.replica, 0)
        for traceback in _logs.printed_tracebacks(daemon, source):
            found.append((known, traceback))
            if not is_consequence(traceback):
                return _states.traceback_json(known, traceback)
    return _states.traceback_json(*found[0]) if found else None


def _sources(
    app_id: str,
    containers: "Sequence[_states.Container]",
    replicas: "Sequence[tuple[str, int]] | None",
) -> "list[_logs.Source]":
    """What to read; everything for ``None``."""
    if not containers:
        msg = f"there is no app `{app_id}` on this Docker daemon; `torchx list -s local_docker`"
        raise LogsNotFound(msg)
    found: dict[tuple[str, int], _logs.Source] = {}
    twice = set()
    for members in _states.by_role(containers).values():
        for c in members:
            if (c.role, c.replica) in found:
                twice.add((c.role, c.replica))
            found[c.role, c.replica] = _logs.Source(c.id, c.role, c.replica, len(found))
    wanted = [*found] if replicas is None else [*replicas]
    for role, k in wanted:
        if (role, k) in twice:
            raise LogsNotFound(_several(app_id, role, k))
        if (role, k) not in found:
            have = ", ".join(f"{r}/{i}" for r, i in [*found][:20])
            msg = f"app `{app_id}` has no replica `{role}/{k}`, it has: {have}"
            raise LogsNotFound(msg)
    return [found[target] for target in wanted]


def _several(app_id: str, role: str, k: int) -> str:
    return f"app `{app_id}` has several containers for replica `{role}/{k}`: remove all but one"


def _to_ns(moment: "datetime | float | None") -> int | None:
    """Nanoseconds since the epoch; a time without a zone is local time."""
    if moment is None:
        return None
    if isinstance(moment, (int, float)):
        return int(moment * 1_000_000_000)
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000_000 + (
        moment.microsecond * 1000
    )


def _to_str(a: "str | bytes") -> str:
    """Text as it is, bytes decoded (NeMo-Run imports this)."""
    return a.decode("utf-8", "replace") if isinstance(a, bytes) else a


def create_scheduler(session_name: str, **kwargs: object) -> DockerScheduler:
    """Makes the scheduler; unknown keywords are ignored, since all factories get the same."""
    return DockerScheduler(session_name)
