"""``kubernetes``: runs the roles of an app as Jobs of a cluster."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, InvalidInput
from torchx.schedulers.api import (
    AppSnapshot,
    LogChunk,
    LogQuery,
    ReplicaKey,
    Scheduler,
    SchedulerFeatures,
)
from torchx.schedulers.ids import make_unique
from torchx.specs.api import AppDef, AppDryRunInfo, AppState, CfgVal, RetryPolicy, runopts
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from ._compat import read_overlay
from ._options import Opts
from ._request import Facts, KubernetesJob, build_request, render_request
from ._states import build_snapshot, group_jobs, parse_app, row_state

if TYPE_CHECKING:
    from torchx.schedulers.causes import Rule
    from torchx.schedulers.checkups import Checkup

_ROWS_WITH_PODS = 50
"""Of so many live apps a list looks at the pods; of more, the words of the Jobs do."""
_VALIDATION_S = 10.0
_Home = tuple[str | None, str | None]
"""Kubeconfig and context; ``None`` for the user's own choice."""

logger = get_logger(__name__)


class KubernetesScheduler(DockerWorkspaceMixin, Scheduler[Opts]):
    """Runs apps on the cluster of a kubeconfig, which also keeps all that is known of them.

    Args:
        client: of the API server; ``None`` for one that the kubeconfig tells, made on first use.
        docker_client: of Docker's SDK, for images with the user's code.
    """

    features = SchedulerFeatures(
        log_time_range=True,
        delete_forgets=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.REPLICA}),
        min_replicas=True,
        mounts=True,
        event_wait=True,
        attempts=True,
    )

    def __init__(self, session_name: str, client: Any = None, docker_client: Any = None) -> None:
        super().__init__("kubernetes", session_name, docker_client=docker_client)
        self._given_client = client
        self._clients: dict[_Home, Any] = {}
        self._homes: dict[str, _Home] = {}
        self._looked: dict[str, Any] = {}
        self._watches: Any = None

    def _kube(self, home: _Home = (None, None)) -> Any:
        """The client of a cluster."""
        if self._given_client is not None:
            return self._given_client
        if home not in self._clients:
            from torchx.schedulers._kube.connect import connect

            self._clients[home] = connect(*home)[0]
        return self._clients[home]

    def close(self) -> None:
        """Closes connections; they are opened again when needed."""
        if self._watches is not None:
            self._watches.close()
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.transport.close()
        self._looked.clear()
        super().close()

    # -- submitting -------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return Opts.as_runopts()

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """A role without a resource is accepted: its pods have no limits."""

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[KubernetesJob]:
        import copy

        app = copy.copy(app)  # images that are pushed get other names
        app.roles = [copy.copy(role) for role in app.roles]
        images = self.dryrun_push_images(app, cfg)
        overlays = {role.name: read_overlay(role) for role in app.roles}
        facts = Facts(self._namespace(cfg.namespace, (cfg.kubeconfig, cfg.context)), overlays)
        job = build_request(app, make_unique(app.name), cfg, facts)
        job.images_to_push = images
        if cfg.validate_spec and not images:
            self._validate_on_server(job)
        return AppDryRunInfo(job, render_request)

    def _namespace(self, given: str | None, home: _Home) -> str:
        """The namespace that was given, else that of the context, else ``default``."""
        if given:
            return given
        from torchx.schedulers._kube.discover import load_config
        from torchx.schedulers._kube.errors import NoCluster

        try:
            return load_config(*home).namespace or "default"
        except NoCluster:
            return "default"

    def _validate_on_server(self, job: KubernetesJob) -> None:
        """Lets the cluster check the objects; where it cannot be reached, that is said."""
        from torchx.schedulers._kube.discover import load_config
        from torchx.schedulers._kube.errors import NoCluster

        home = (job.kubeconfig, job.context)
        if self._given_client is None:
            try:
                load_config(*home)
            except NoCluster as err:
                logger.info("the objects are not checked: %s", err)
                return
        from ._client import validate

        try:
            validate(self._kube(home), job)
        except BackendUnavailable as err:
            logger.warning("the objects are not checked by the cluster: %s", err)

    def schedule(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> str:
        """Makes all objects of the app and lets them start, or leaves nothing behind.

        Raises:
            JobStartError: if another app has the name.
            BackendUnavailable: if the cluster cannot be reached.
        """
        from ._client import submit

        job = dryrun_info.request
        self.push_images(job.images_to_push)
        home = (job.kubeconfig, job.context)
        submit(self._kube(home), self._by_digest(job))
        self._homes[job.app_id] = home
        return job.app_id

    def _by_digest(self, job: KubernetesJob) -> KubernetesJob:
        """The request with pushed images by their digests, which nobody can move."""
        if not job.images_to_push:
            return job
        import copy

        pushed = copy.deepcopy(job)
        for body in pushed.jobs:
            for container in body["spec"]["template"]["spec"]["containers"]:
                container["image"] = self.pushed_image(container["image"])
        return pushed

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """State and replicas of an app; ``None`` if the cluster has no Jobs of it."""
        from ._client import explain, look

        home, namespace, name = self._place(app_id)
        kube = self._kube(home)
        looked = look(kube, namespace, name)
        if looked is None:
            self._forget(app_id)
            return None
        snapshot = build_snapshot(looked.app)
        waiting = [r for r in snapshot.replicas if r.state is AppState.PENDING]
        untold = not snapshot.cancelled and not any(replica.reason for replica in waiting)
        if waiting and untold and not looked.app.missing:
            snapshot = build_snapshot(looked.app, explain(kube, looked.app))
        if snapshot.terminal and self._watches is not None:
            self._watches.close(looked.app.id)
        self._looked[app_id] = looked
        return snapshot

    def _place(self, app_id: str) -> tuple[_Home, str, str]:
        """Cluster, namespace and name of an app."""
        home = self._homes.get(app_id, (None, None))
        namespace, colon, name = app_id.partition(":")
        if not colon:
            namespace, name = self._namespace(None, home), app_id
        return home, namespace, name

    def _forget(self, app_id: str) -> None:
        self._looked.pop(app_id, None)
        if self._watches is not None:
            self._watches.close(app_id)

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """All apps of a namespace, the latest first."""
        from ._client import list_jobs, list_pods_of

        opts = Opts.from_cfg(cfg or {})
        home = (opts.kubeconfig, opts.context)
        kube = self._kube(home)
        namespace = self._namespace(opts.namespace, home)
        found = group_jobs(list_jobs(kube, namespace))
        apps = [app for app_id, jobs in found.items() if (app := parse_app(app_id, jobs, ()))]
        live = [app for app in apps if row_state(app) in (AppState.PENDING, AppState.RUNNING)]
        looked: dict[str, AppSnapshot] = {}
        if 0 < len(live) <= _ROWS_WITH_PODS:
            pods = list_pods_of(kube, namespace, [app.id.partition(":")[2] for app in live])
            for app in live:
                own = parse_app(app.id, app.jobs.values(), pods)
                looked[app.id] = build_snapshot(own or app)
        return [
            looked.get(app.id) or AppSnapshot(app.id, name=app.name, native_state=row_state(app))
            for app in apps
        ]

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns as soon as an object of the app has changed, at the latest after the time."""
        looked = self._looked.get(app_id)
        if looked is None:
            time.sleep(timeout_s)
            return
        from ._client import Watches

        self._watches = self._watches or Watches()
        home, _, _ = self._place(app_id)
        self._watches.wait(self._kube(home), looked.app.id, looked, timeout_s)

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Lines of these replicas in the order of time, of all containers of their pods."""
        from ._client import selections
        from ._logs import read_logs

        home, namespace, name = self._place(snapshot.app_id)
        start: dict[Any, Any] = {}
        looked = self._looked.pop(snapshot.app_id, None)
        if looked is not None:
            of_jobs, of_pods = selections(namespace, name)
            start = {of_jobs: looked.jobs, of_pods: looked.pods}
        return read_logs(self._kube(home), f"{namespace}:{name}", replicas, query, start)

    def checkups(self) -> "Sequence[Checkup]":
        """What jobs here need."""
        from ._checkups import checkups

        return checkups()

    def cause_rules(self) -> "Sequence[Rule]":
        """What the words of this backend mean."""
        from ._causes import RULES

        return RULES

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Ends an app that a user cancelled: the pods go, the Jobs stay."""
        self._end(snapshot, "cancelled", ())

    def end_rest(self, snapshot: AppSnapshot) -> None:
        """Ends the other roles; the Job of the role that failed ends by itself."""
        failed = {replica.role for replica in snapshot.failures}
        self._end(snapshot, "failed", failed)

    def _end(self, snapshot: AppSnapshot, word: str, spared: Iterable[str]) -> None:
        from ._client import end

        home, _, _ = self._place(snapshot.app_id)
        app = self._app(snapshot.app_id)
        jobs = [role.job for role in app.roles if role.name in spared]
        end(self._kube(home), app, word, jobs)

    def remove(self, snapshot: AppSnapshot) -> None:
        """Removes all objects of the app; what still runs of it ends."""
        from ._client import remove

        home, _, _ = self._place(snapshot.app_id)
        remove(self._kube(home), self._app(snapshot.app_id))
        self._forget(snapshot.app_id)

    def _app(self, app_id: str) -> Any:
        """The objects of the app, as they were looked at."""
        looked = self._looked.get(app_id)
        if looked is None:
            self.look(app_id)
            looked = self._looked.get(app_id)
        if looked is None:
            raise InvalidInput(f"`kubernetes` does not know app `{app_id}` any more")
        return looked.app


def create_scheduler(
    session_name: str, client: Any = None, docker_client: Any = None, **kwargs: object
) -> KubernetesScheduler:
    """Makes the scheduler; unknown keywords are ignored, since all factories get the same."""
    return KubernetesScheduler(session_name, client=client, docker_client=docker_client)
