"""``kubernetes_mcad``: runs apps as AppWrappers of a cluster."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import replace
from torchx.schedulers._kube.apps.app import ended_mark, group_jobs, parse_app
from torchx.schedulers._kube.apps.clusters import Clusters
from torchx.schedulers._kube.apps.labels import label_value
from torchx.schedulers._kube.apps.overlays import read_overlay
from torchx.schedulers._kube.apps.snapshots import build_snapshot, sum_states
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
from torchx.specs.api import AppDef, AppDryRunInfo, AppState, CfgVal, RetryPolicy, runopts
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from ._names import get_unique_truncated_appid
from ._options import Opts
from ._request import Facts, KubernetesMCADJob, build_request, check_options, render_request
from ._states import READER, is_going, is_over, needs_nobody, why_not, wrapper_state

if TYPE_CHECKING:
    from torchx.schedulers._kube.apps.look import Looked
    from torchx.schedulers._kube.calls import Kind
    from torchx.schedulers._kube.pods import PodPort
    from torchx.schedulers.causes import Rule
    from torchx.schedulers.checkups import Checkup, Configured

_ROWS_WITH_PODS = 50
"""A list reads the pods of up to this many live apps; beyond, the AppWrappers' state is used."""

_V1BETA1 = SchedulerFeatures(
    log_time_range=True,
    delete_forgets=True,
    durable=True,
    replica_statuses=True,
    exit_codes=True,
    mounts=True,
    event_wait=True,
    execute=True,
    port_forward=True,
)
FEATURES = {
    "v1beta1": _V1BETA1,
    "v1beta2": replace(_V1BETA1, retries=frozenset({RetryPolicy.APPLICATION})),
}
"""Features of an app, by the option ``appwrapper_version``."""


class KubernetesMCADScheduler(DockerWorkspaceMixin, Scheduler[Opts]):
    """Runs apps on the cluster of a kubeconfig, by MCAD or by the AppWrapper controller.

    Args:
        client: client of the API server; ``None`` creates one from the kubeconfig on first use.
        docker_client: client of Docker's SDK, for images with the user's code.
    """

    features = _V1BETA1

    def __init__(self, session_name: str, client: Any = None, docker_client: Any = None) -> None:
        super().__init__("kubernetes_mcad", session_name, docker_client=docker_client)
        self._clusters = Clusters(client, "kubernetes_mcad")
        self._kind: Kind | None = None

    def close(self) -> None:
        """Closes connections; they are opened again when needed."""
        self._clusters.close()
        super().close()

    # -- submitting -------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return Opts.as_runopts()

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """Accepts a role without a resource: its pods have no limits."""

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None:
        super()._pre_build_validate(app, scheduler, cfg)
        if isinstance(cfg, Mapping):
            check_options(Opts.from_cfg(cfg))

    def _features_with(self, cfg: Any) -> SchedulerFeatures:
        version = cfg.get("appwrapper_version") if isinstance(cfg, Mapping) else None
        return FEATURES.get(str(version), self.features)

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[KubernetesMCADJob]:
        app = copy.copy(app)  # pushed images get other names
        app.roles = [copy.copy(role) for role in app.roles]
        images = self.dryrun_push_images(app, cfg)
        overlays = {r.name: read_overlay(r, app, (self.backend, "kubernetes")) for r in app.roles}
        namespace = self._clusters.namespace(cfg.namespace, (cfg.kubeconfig, cfg.context))
        unique = get_unique_truncated_appid(app)
        job = build_request(app, unique, cfg, Facts(namespace, overlays))
        job.images_to_push = images
        return AppDryRunInfo(job, render_request)

    def schedule(self, dryrun_info: AppDryRunInfo[KubernetesMCADJob]) -> str:
        """Creates the AppWrapper, which is the whole app.

        Raises:
            JobStartError: if another app has the name.
            BackendUnavailable: if the cluster cannot be reached.
        """
        from ._client import submit

        job = dryrun_info.request
        self.push_images(job.images_to_push)
        home = (job.kubeconfig, job.context)
        submit(self._clusters.kube(home), self._by_digest(job))
        self._clusters.settle(job.app_id, home)
        return job.app_id

    def _by_digest(self, job: KubernetesMCADJob) -> KubernetesMCADJob:
        """Returns the request with pushed images by digest, which cannot be moved like tags."""
        if not job.images_to_push:
            return job
        pushed = copy.deepcopy(job)
        for obj in wrapped_objects(pushed.resource):
            for container in obj["spec"].get("containers") or ():
                container["image"] = self.pushed_image(container["image"])
        return pushed

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """Returns state and replicas of an app; ``None`` if cluster and machine lack it."""
        from torchx.schedulers._kube.apps.look import explain

        from ._client import look, marked, recall_cancelled, was_cancelled

        home, namespace, name = self._clusters.place(app_id)
        if name != label_value(name):
            return None  # no object can have such a name
        kube = self._clusters.kube(home)
        looked = look(kube, namespace, name, self._kind)
        if looked is None:
            self._clusters.forget(app_id)
            gone = recall_cancelled(f"{namespace}:{name}")
            return None if gone is None else build_snapshot(gone, READER)
        self._kind = looked.kind
        self._clusters.looked[app_id] = looked
        app = looked.app
        if is_going(app) and was_cancelled(app.id):
            app = marked(app)
        snapshot = build_snapshot(app, READER)
        waiting = [r for r in snapshot.replicas if r.state is AppState.PENDING]
        if waiting and not snapshot.cancelled and not any(r.reason for r in waiting):
            reasons = explain(kube, app, is_over)
            reasons = reasons or {key: why_not(wrapper) for key, wrapper in app.jobs.items()}
            snapshot = build_snapshot(app, READER, reasons)
        self._clusters.puzzled(app_id, bool(waiting) and not snapshot.message)
        if snapshot.terminal:
            self._clusters.stop_watching(app.id)
        return snapshot

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """Returns all apps of a namespace, latest first."""
        from torchx.schedulers._kube.apps.look import list_pods_of

        from ._client import list_wrappers

        opts = Opts.from_cfg(cfg or {})
        home = (opts.kubeconfig, opts.context)
        kube = self._clusters.kube(home)
        namespace = self._clusters.namespace(opts.namespace, home)
        kind, wrappers = list_wrappers(kube, namespace, self._kind)
        found = group_jobs(wrappers)
        if found:
            self._kind = kind
        apps = [app for app_id, own in found.items() if (app := parse_app(app_id, own, ()))]
        rows = {app.id: sum_states({*map(wrapper_state, app.jobs.values())}, False) for app in apps}
        # MCAD reports `Running` for apps that have ended
        live = [app for app in apps if rows[app.id] in (AppState.PENDING, AppState.RUNNING)]
        looked: dict[str, AppSnapshot] = {}
        if 0 < len(live) <= _ROWS_WITH_PODS:
            pods = list_pods_of(kube, namespace, [app.id.partition(":")[2] for app in live])
            for app in live:
                name = app.id.partition(":")[2]
                mine = [p for p in pods if p["spec"].get("subdomain") == name]
                own_app = parse_app(app.id, app.jobs.values(), mine)
                looked[app.id] = build_snapshot(own_app or app, READER)
        return [
            looked.get(app.id) or AppSnapshot(app.id, name=app.name, native_state=rows[app.id])
            for app in apps
        ]

    def describe_native(self, app_id: str) -> AppDryRunInfo[KubernetesMCADJob] | None:
        """Returns the AppWrapper from the cluster; ``None`` if there is none."""
        if self.snapshot(app_id) is None or app_id not in self._clusters.looked:
            return None
        (wrapper,) = self._clusters.looked[app_id].app.jobs.values()
        return AppDryRunInfo(KubernetesMCADJob({}, dict(wrapper)), render_request)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when an object of the app has changed, at the latest after the timeout."""
        self._clusters.wait_for_change(app_id, timeout_s)

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of these replicas by time, of all containers of their pods."""
        from torchx.schedulers._kube.apps.logs import read_logs

        from ._client import KINDS

        app_id = snapshot.app_id
        home, namespace, name = self._clusters.place(app_id)
        looked = self._clusters.looked.pop(app_id, None)
        start = {} if looked is None else looked.lists
        kube, place = self._clusters.kube(home), f"{namespace}:{name}"
        kind = self._kind or KINDS["v1beta1"]
        return read_logs(kube, place, replicas, query, start, kind, READER)

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Returns the checks of what jobs of this scheduler need."""
        from ._checkups import checkups

        return checkups(configured)

    def cause_rules(self) -> "Sequence[Rule]":
        """Returns the rules for messages of MCAD and the cluster."""
        from ._causes import RULES

        return RULES

    def refusal_rules(self) -> "Sequence[Rule]":
        """Returns the rules for refusals by the cluster."""
        from torchx.schedulers._kube.apps.causes import REFUSALS

        return REFUSALS

    # -- inside a replica -------------------------------------------------------------------

    def execute(self, snapshot: AppSnapshot, replica: ReplicaSnapshot, request: ExecRequest) -> int:
        """Runs a command in the container of the replica."""
        looked = self._looked(snapshot.app_id)
        app = None if looked is None else looked.app
        return self._clusters.execute(app, snapshot, replica.native_id, request)

    def open_port(self, snapshot: AppSnapshot, replica: ReplicaSnapshot, port: int) -> "PodPort":
        """Opens a connection to a port of the pod, through the API server."""
        return self._clusters.open_port(snapshot, replica.native_id, port)

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Removes the AppWrapper and its pods; the cancel is recorded on this machine."""
        from ._client import cancel

        looked = self._looked(snapshot.app_id)
        if looked is not None:
            home, _, _ = self._clusters.place(snapshot.app_id)
            cancel(self._clusters.kube(home), looked)

    def end_rest(self, snapshot: AppSnapshot) -> None:
        """Ends the pods that still run, once."""
        from ._client import end_pods

        looked = self._looked(snapshot.app_id)
        if looked is not None and not any(map(ended_mark, looked.app.jobs.values())):
            home, _, _ = self._clusters.place(snapshot.app_id)
            end_pods(self._clusters.kube(home), looked)

    def needs_watcher(self, app_id: str) -> bool:
        """Returns True if a failure ends the rest of the app only while something waits for it."""
        if not super().needs_watcher(app_id):
            return False
        looked = self._looked(app_id)
        return looked is None or not needs_nobody(looked.app)

    def remove(self, snapshot: AppSnapshot) -> None:
        """Removes the AppWrapper and its pods, and its local record."""
        from ._client import remove

        looked = self._looked(snapshot.app_id)
        if looked is not None:
            home, _, _ = self._clusters.place(snapshot.app_id)
            remove(self._clusters.kube(home), looked)
        self._clusters.removed(snapshot.app_id)

    def _looked(self, app_id: str) -> "Looked | None":
        """Returns the objects of the app from the last query; ``None`` if they are gone."""
        if app_id not in self._clusters.looked:
            self.look(app_id)
        return self._clusters.looked.get(app_id)


def wrapped_objects(wrapper: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the objects in an AppWrapper of either generation."""
    spec = wrapper["spec"]
    for item in (spec.get("resources") or {}).get("GenericItems") or ():
        yield item["generictemplate"]
    for component in spec.get("components") or ():
        yield component["template"]


def create_scheduler(
    session_name: str, client: Any = None, docker_client: Any = None, **kwargs: object
) -> KubernetesMCADScheduler:
    """Creates the scheduler; unknown keywords are ignored, because all factories get the same."""
    return KubernetesMCADScheduler(session_name, client=client, docker_client=docker_client)
