"""``kubernetes``: runs the roles of an app as Jobs of a cluster."""

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, InvalidInput, TorchXError
from torchx.schedulers._kube.apps.clusters import Clusters, Home
from torchx.schedulers._kube.apps.labels import label_value
from torchx.schedulers._kube.apps.overlays import read_overlay
from torchx.schedulers._kube.apps.snapshots import build_snapshot
from torchx.schedulers._kube.errors import Forbidden
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
from torchx.specs.api import AppDef, AppDryRunInfo, AppState, CfgVal, runopts
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from ._compat import unique_name
from ._kinds import JOB_FEATURES, KINDS, ObjectKind, has_kueue, kind_for_queue
from ._options import Opts
from ._plan import Facts
from ._request import KubernetesJob, build_request, check_options, render_request
from ._states import is_over, needs_nobody

if TYPE_CHECKING:
    from torchx.schedulers._kube.apps.app import App
    from torchx.schedulers._kube.pods import PodPort
    from torchx.schedulers.causes import Rule
    from torchx.schedulers.checkups import Checkup, Configured

_VALIDATION_S = 10.0
"""Seconds that a dry run waits for each response of the cluster."""

logger = get_logger(__name__)


class KubernetesScheduler(DockerWorkspaceMixin, Scheduler[Opts]):
    """Runs apps on the cluster of a kubeconfig, which also stores their state.

    Args:
        client: client of the API server; ``None`` creates one from the kubeconfig on first use.
        docker_client: client of Docker's SDK, for images with the user's code.
    """

    features = JOB_FEATURES

    def __init__(self, session_name: str, client: Any = None, docker_client: Any = None) -> None:
        super().__init__("kubernetes", session_name, docker_client=docker_client)
        self._clusters = Clusters(client)
        self._kinds: dict[str, ObjectKind] = {}
        self._groups: dict[Home, Mapping[str, Sequence[str]]] = {}

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
        api = cfg.get("job_api") if isinstance(cfg, Mapping) else None
        kind = KINDS.get(str(api))
        return self.features if kind is None else kind.features

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[KubernetesJob]:
        app = copy.copy(app)  # pushed images get other names
        app.roles = [copy.copy(role) for role in app.roles]
        images = self.dryrun_push_images(app, cfg)
        overlays = {role.name: read_overlay(role, app) for role in app.roles}
        home = (cfg.kubeconfig, cfg.context)
        api, opts = self._choose_api(cfg, home)
        facts = Facts(self._clusters.namespace(cfg.namespace, home), overlays, api)
        job = build_request(app, unique_name(app.name), opts, facts)
        job.images_to_push = images
        if cfg.validate_spec and not images:
            self._validate_on_server(job)
        return AppDryRunInfo(job, render_request)

    def _choose_api(self, cfg: Opts, home: Home) -> tuple[str, Opts]:
        """Returns the kind of objects for the app, and the options for it."""
        if cfg.job_api is not None or cfg.queue is None:
            return cfg.job_api or "job", cfg
        try:
            why = self._clusters.reachable(home)
            groups = {} if why else self._groups_of(home, _VALIDATION_S)
        except TorchXError as err:
            why = str(err)
        if why:
            logger.info("the app is planned for Volcano, which `queue` is for: %s", why)
            return "volcano", cfg
        api = kind_for_queue(groups)
        if api == "job" and not has_kueue(groups):
            logger.warning(
                "the cluster has neither Volcano nor Kueue: `queue` is left out, given: `%s`",
                cfg.queue,
            )
            return api, dataclasses.replace(cfg, queue=None)
        return api, cfg

    def _groups_of(self, home: Home, most_s: float | None = None) -> Mapping[str, Sequence[str]]:
        """Returns the API groups of a cluster, queried once."""
        if home not in self._groups:
            kube = self._clusters.kube(home)
            self._groups[home] = (kube.hurried(most_s) if most_s else kube).groups()
        return self._groups[home]

    def _validate_on_server(self, job: KubernetesJob) -> None:
        """Lets the cluster check the objects; warns if it cannot be reached."""
        home = (job.kubeconfig, job.context)
        if self._clusters.reachable(home):  # its error names the reason
            logger.info("the objects are not checked, because there is no cluster")
            return
        from ._launch import validate

        try:
            validate(self._clusters.kube(home).hurried(_VALIDATION_S), job)
        except BackendUnavailable as err:
            logger.warning("the objects are not checked by the cluster: %s", err)

    def schedule(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> str:
        """Creates all objects of the app and starts them; rolls back on failure.

        Raises:
            JobStartError: if another app has the name.
            BackendUnavailable: if the cluster cannot be reached.
        """
        from ._launch import submit

        job = dryrun_info.request
        self.push_images(job.images_to_push)
        home = (job.kubeconfig, job.context)
        submit(self._clusters.kube(home), self._by_digest(job))
        self._clusters.settle(job.app_id, home)
        self._kinds[job.app_id] = KINDS[job.api]
        return job.app_id

    def _by_digest(self, job: KubernetesJob) -> KubernetesJob:
        """Returns the request with pushed images by digest, which cannot be moved like tags."""
        if not job.images_to_push:
            return job
        pushed = copy.deepcopy(job)
        for container in containers_of(pushed.jobs):
            container["image"] = self.pushed_image(container["image"])
        return pushed

    # -- looking ----------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """Returns state and replicas of an app; ``None`` if the cluster has no objects of it."""
        from torchx.schedulers._kube.apps.look import explain

        from ._client import look, pod_group

        home, namespace, name = self._clusters.place(app_id)
        if name != label_value(name):
            return None  # no object can have such a name
        kube = self._clusters.kube(home)
        found = look(kube, namespace, name, self._kinds.get(app_id))
        if found is None:
            self._forget(app_id)
            return None
        looked, kind = found
        app, reader = looked.app, kind.reader
        snapshot = build_snapshot(app, reader)
        waiting = [r for r in snapshot.replicas if r.state is AppState.PENDING]
        untold = not snapshot.cancelled and not any(replica.reason for replica in waiting)
        if waiting and untold and not app.half_submitted:
            group_of = pod_group if kind.api == "volcano" else None
            words = explain(kube, app, is_over, group_of)
            snapshot = build_snapshot(app, reader, words)
            self._clusters.puzzled(app_id, not words)
        else:
            self._clusters.puzzled(app_id, False)
        if snapshot.terminal:
            self._clusters.stop_watching(app.id)
        self._kinds[app_id] = kind
        self._clusters.looked[app_id] = looked
        return snapshot

    def _forget(self, app_id: str) -> None:
        self._kinds.pop(app_id, None)
        self._clusters.forget(app_id)

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[AppSnapshot]:
        """Returns all apps of a namespace, latest first."""
        from ._client import list_apps

        opts = Opts.from_cfg(cfg or {})
        home = (opts.kubeconfig, opts.context)
        kube = self._clusters.kube(home)
        namespace = self._clusters.namespace(opts.namespace, home)
        rows = list_apps(kube, namespace, self._kinds_of(home))
        self._kinds.update((snapshot.app_id, kind) for kind, snapshot in rows)
        return [snapshot for _, snapshot in rows]

    def _kinds_of(self, home: Home) -> list[ObjectKind]:
        """Returns the kinds of objects that a cluster may have."""
        groups = self._groups_of(home)
        return [k for k in KINDS.values() if k.kind.group in groups or k.api == "job"]

    def look_many(self, app_ids: Sequence[str]) -> Mapping[str, AppSnapshot]:
        """Like ``look``, with a few requests for all apps of a namespace; without reasons."""
        if len(app_ids) < 2:
            return super().look_many(app_ids)
        from ._many import look_many

        found: dict[str, AppSnapshot] = {}
        for (home, namespace), names in self._places(app_ids).items():
            kube, kinds = self._clusters.kube(home), self._kinds_of(home)
            for name, (looked, kind) in look_many(kube, namespace, [*names], kinds).items():
                app_id = names[name]
                self._kinds[app_id] = kind
                self._clusters.looked[app_id] = looked
                found[app_id] = build_snapshot(looked.app, kind.reader)
        return found

    def _places(self, app_ids: Iterable[str]) -> dict[tuple[Home, str], dict[str, str]]:
        """Returns ids of apps by name, for each cluster and namespace."""
        places: dict[tuple[Home, str], dict[str, str]] = {}
        for app_id in app_ids:
            home, namespace, name = self._clusters.place(app_id)
            places.setdefault((home, namespace), {})[name] = app_id
        return places

    def describe_native(self, app_id: str) -> AppDryRunInfo[KubernetesJob] | None:
        """Returns the app's objects from the cluster; ``None`` if there are none."""
        if self.snapshot(app_id) is None:
            return None
        _, namespace, name = self._clusters.place(app_id)
        looked = self._clusters.looked[app_id]
        jobs = [dict(job) for job in looked.app.jobs.values()]
        request = KubernetesJob(name, namespace, jobs, api=self._kinds[app_id].api)
        return AppDryRunInfo(request, render_request)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when an object of the app has changed, at the latest after the timeout."""
        self._clusters.wait_for_change(app_id, timeout_s)

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """Yields lines of these replicas by time, of all containers of their pods."""
        from torchx.schedulers._kube.apps.logs import read_logs

        app_id = snapshot.app_id
        home, namespace, name = self._clusters.place(app_id)
        kind = self._kinds.get(app_id) or KINDS["job"]
        looked = self._clusters.looked.pop(app_id, None)
        start = {} if looked is None else looked.lists
        kube, place = self._clusters.kube(home), f"{namespace}:{name}"
        return read_logs(kube, place, replicas, query, start, kind.kind, kind.reader)

    def checkups(self, configured: "Configured | None" = None) -> "Sequence[Checkup]":
        """Returns the checks of what jobs on Kubernetes need."""
        from ._checkups import checkups

        return checkups(configured)

    def cause_rules(self) -> "Sequence[Rule]":
        """Returns the rules for messages of the cluster."""
        from torchx.schedulers._kube.apps.causes import RULES

        return RULES

    def refusal_rules(self) -> "Sequence[Rule]":
        """Returns the rules for refusals by the cluster."""
        from torchx.schedulers._kube.apps.causes import REFUSALS

        return REFUSALS

    # -- inside a replica -------------------------------------------------------------------

    def execute(self, snapshot: AppSnapshot, replica: ReplicaSnapshot, request: ExecRequest) -> int:
        """Runs a command in the container of the replica."""
        app = self._app(snapshot.app_id)
        return self._clusters.execute(app, snapshot, replica.native_id, request)

    def open_port(self, snapshot: AppSnapshot, replica: ReplicaSnapshot, port: int) -> "PodPort":
        """Opens a connection to a port of the pod, through the API server."""
        return self._clusters.open_port(snapshot, replica.native_id, port)

    # -- ending -----------------------------------------------------------------------------

    def end(self, snapshot: AppSnapshot) -> None:
        """Ends an app that a user cancelled: pods are deleted, the main objects are kept."""
        self._end(snapshot, "cancelled", ())

    def end_rest(self, snapshot: AppSnapshot) -> None:
        """Ends the other roles; the Job of the role that failed ends by itself."""
        failed = {replica.role for replica in snapshot.failures}
        self._end(snapshot, "failed", failed)

    def needs_watcher(self, app_id: str) -> bool:
        """Returns True if a failure ends the rest of the app only while something waits for it."""
        if not super().needs_watcher(app_id):
            return False
        return not needs_nobody(self._app(app_id))

    def _end(self, snapshot: AppSnapshot, word: str, spared: Iterable[str]) -> None:
        from ._client import end

        home, _, _ = self._clusters.place(snapshot.app_id)
        app, kind = self._app(snapshot.app_id), self._kinds[snapshot.app_id]
        jobs = [role.job for role in app.roles if role.name in spared and kind.api == "job"]
        end(self._clusters.kube(home), app, kind, word, jobs)

    def remove(self, snapshot: AppSnapshot) -> None:
        """Removes all objects of the app, which ends what still runs."""
        from ._client import remove

        home, _, _ = self._clusters.place(snapshot.app_id)
        app = self._app(snapshot.app_id)
        remove(self._clusters.kube(home), app, self._kinds[snapshot.app_id])
        self._kinds.pop(snapshot.app_id, None)
        self._clusters.removed(snapshot.app_id)

    def remove_many(self, snapshots: Sequence[AppSnapshot]) -> Mapping[str, TorchXError]:
        """Removes apps with one request for each kind of objects in a namespace."""
        if len(snapshots) < 2:
            return super().remove_many(snapshots)
        from ._many import remove_many

        errors: dict[str, TorchXError] = {}
        for (home, namespace), names in self._places(s.app_id for s in snapshots).items():
            kinds = {self._kinds[app_id].api: self._kinds[app_id] for app_id in names.values()}
            try:
                remove_many(self._clusters.kube(home), namespace, [*names], kinds.values())
            except Forbidden:  # `deletecollection` is a right of its own
                own = [s for s in snapshots if s.app_id in names.values()]
                errors.update(super().remove_many(own))
                continue
            except TorchXError as err:
                errors.update(dict.fromkeys(names.values(), err))
                continue
            for app_id in names.values():
                self._kinds.pop(app_id, None)
                self._clusters.removed(app_id)
        return errors

    def _app(self, app_id: str) -> "App":
        """Returns the objects of the app from the last query."""
        if app_id not in self._clusters.looked:
            self.look(app_id)
        looked = self._clusters.looked.get(app_id)
        if looked is None:
            raise InvalidInput(f"`kubernetes` does not know app `{app_id}` any more")
        return looked.app


def containers_of(jobs: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the containers of all pods that these objects create."""
    for job in jobs:
        spec = job["spec"]
        templates = [task["template"] for task in spec.get("tasks") or ()]
        sets = spec.get("replicatedJobs") or ()
        templates += [replicated["template"]["spec"]["template"] for replicated in sets]
        for template in templates or [spec["template"]]:
            yield from template["spec"]["containers"]


def create_scheduler(
    session_name: str, client: Any = None, docker_client: Any = None, **kwargs: object
) -> KubernetesScheduler:
    """Creates the scheduler; unknown keywords are ignored, because all factories get the same."""
    return KubernetesScheduler(session_name, client=client, docker_client=docker_client)
