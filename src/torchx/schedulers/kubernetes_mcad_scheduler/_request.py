"""Builds the AppWrapper: pods or Jobs, the Service by which they find each other. Pure."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers._core.checks import ends_on_failure
from torchx.schedulers._core.replicas import Replica, expand_with_first
from torchx.schedulers._kube.apps.app import note_app
from torchx.schedulers._kube.apps.indexed import Texts, build_job_spec, limits_of_failures
from torchx.schedulers._kube.apps.indexed import build_pod as build_indexed_pod
from torchx.schedulers._kube.apps.labels import (
    ANNOTATION_APP,
    LABEL_QUEUE,
    LABEL_REPLICA_ID,
    LABEL_UNIQUE_NAME,
    app_labels,
    role_labels,
)
from torchx.schedulers._kube.apps.pods import (
    ANNOTATION_ISTIO_SIDECAR,
    PodOptions,
    build_main,
    build_placement,
    escaped,
    lay_over,
)
from torchx.schedulers._kube.apps.text import render_objects
from torchx.settings import ENV_TORCHX_RANK0_HOST
from torchx.specs.api import AppDef, Role

from ._names import fitting_name, host_variable, job_name, pod_name
from ._options import Opts

VERSIONS = ("v1beta1", "v1beta2")
DEFAULT_PORT = "29500"
_MOST_ROLES = 8
"""Most pod templates in an AppWrapper of ``v1beta2``, a limit of its controller and Kueue."""
_GROUP = "workload.codeflare.dev"
_SETTING = f"{_GROUP}.appwrapper"
_NETWORKS = "k8s.v1.cni.cncf.io/networks"
_POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"

logger = get_logger(__name__)


@dataclass(frozen=True)
class Facts:
    """Inputs of the request that are not in the app.

    Args:
        overlays: overlays of the pods, by role.
    """

    namespace: str = "default"
    overlays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(repr=False)
class KubernetesMCADJob:
    """The native request of ``kubernetes_mcad``. Its text is the YAML of the AppWrapper."""

    images_to_push: dict[str, tuple[str, str]]
    resource: dict[str, Any]
    context: str | None = None
    kubeconfig: str | None = None

    @property
    def app_id(self) -> str:
        """The app's id in the scheduler."""
        metadata = self.resource["metadata"]
        return f"{metadata['namespace']}:{metadata['name']}"

    def __repr__(self) -> str:
        return render_request(self)

    __str__ = __repr__


def render_request(job: KubernetesMCADJob) -> str:
    """Renders the AppWrapper as YAML."""
    return render_objects([job.resource])


def build_request(app: AppDef, unique: str, opts: Opts, facts: Facts) -> KubernetesMCADJob:
    """Builds the request of an app, which is not changed.

    Args:
        unique: name of the app with a random id at its end.

    Raises:
        InvalidInput: for invalid options, and roles that cannot be pods.
    """
    _check(app, opts)
    name = fitting_name(unique, [role.num_replicas for role in app.roles])
    ends = ends_on_failure(opts.on_failure)
    v1beta2 = opts.appwrapper_version == "v1beta2"
    objects = [
        *_pod_groups(app, name, opts, facts),
        *(_jobs(app, name, opts, facts, ends) if v1beta2 else _pods(app, name, opts, facts)),
        build_service(app, name, facts.namespace, get_port_for_service(app)),
    ]
    retries = min(role.max_retries for role in app.roles)
    spec = _components(objects, opts) if v1beta2 else _generic_items(app, objects, opts, retries)
    counts = [retries if v1beta2 else 0] * len(app.roles)
    annotations = {ANNOTATION_APP: note_app(app, [name] * len(app.roles), ends, counts)}
    if v1beta2:
        annotations |= _reactions(retries)
    queue = {LABEL_QUEUE: opts.queue} if opts.queue else {}
    resource = {
        "apiVersion": f"{_GROUP}/{opts.appwrapper_version}",
        "kind": "AppWrapper",
        "metadata": {
            "name": name,
            "namespace": facts.namespace,
            "labels": {**app_labels(app, name), **queue},
            "annotations": annotations,
        },
        "spec": spec,
    }
    return KubernetesMCADJob({}, resource, opts.context, opts.kubeconfig)


def _check(app: AppDef, opts: Opts) -> None:
    v1beta2 = opts.appwrapper_version == "v1beta2"
    check_options(opts)
    if opts.image_secret and opts.service_account:
        logger.warning(
            "with `image_secret` and `service_account`, the secrets of the account are left out"
        )
    if not app.roles:
        raise InvalidInput(f"app `{app.name}` has no roles")
    if v1beta2 and len(app.roles) > _MOST_ROLES:
        msg = f"an AppWrapper holds at most {_MOST_ROLES} roles, given: {len(app.roles)}"
        raise UnsupportedRequest(f"{msg}; use `kubernetes` with `job_api=jobset`")
    for role in app.roles:
        if role.num_replicas < 1 or not role.image:
            what = "no image, which a pod needs" if not role.image else "no replicas"
            raise InvalidInput(f"role `{role.name}` has {what}")
        if role.max_retries > 0 and not v1beta2:
            logger.warning(
                "role `%s`: MCAD queues an app again that could not start, and does not start one "
                "again that failed; `appwrapper_version=v1beta2` does",
                role.name,
            )


def check_options(opts: Opts) -> None:
    """Refuses values, and pairs of options, that the controller does not know.

    Raises:
        InvalidInput: with the option, its value and the allowed ones.
    """
    v1beta2 = opts.appwrapper_version == "v1beta2"
    if opts.appwrapper_version not in VERSIONS:
        given = opts.appwrapper_version
        msg = f"option `appwrapper_version` is one of {', '.join(VERSIONS)}, given: `{given}`"
        raise InvalidInput(msg)
    if opts.queue and not v1beta2:
        raise InvalidInput("option `queue` needs `appwrapper_version=v1beta2`")
    if opts.priority is not None and v1beta2:
        msg = "option `priority` needs `appwrapper_version=v1beta1`, use `priority_class_name`"
        raise InvalidInput(msg)
    if opts.grace_s is not None and opts.grace_s < 0:
        raise InvalidInput(f"option `grace_s` must not be negative, given: {opts.grace_s}")


# -- what is around the objects ------------------------------------------------------------------


def _generic_items(
    app: AppDef, objects: list[dict[str, Any]], opts: Opts, retries: int
) -> dict[str, Any]:
    items = [{"replicas": 1, "generictemplate": obj} for obj in objects]
    spec: dict[str, Any] = {"resources": {"GenericItems": items}}
    if opts.priority is not None:
        spec["priority"] = opts.priority
    enable_retry(spec, retries, sum(role.num_replicas for role in app.roles))
    return spec


def enable_retry(job_spec: dict[str, Any], appwrapper_retries: int, total_pods: int) -> None:
    """Lets MCAD queue the app again, that many times, if not all of its pods can start."""
    if appwrapper_retries > 0:
        job_spec["schedulingSpec"] = {
            "minAvailable": total_pods,
            "requeuing": {
                "timeInSeconds": 300,
                "maxTimeInSeconds": 0,
                "growthType": "exponential",
                "maxNumRequeuings": appwrapper_retries,
            },
        }


def _components(objects: list[dict[str, Any]], opts: Opts) -> dict[str, Any]:
    spec: dict[str, Any] = {"components": [{"template": obj} for obj in objects]}
    if opts.queue:
        spec["suspend"] = True
    return spec


def _reactions(retries: int) -> dict[str, str]:
    """Returns the annotations for retries, which replace the controller's defaults."""
    return {
        f"{_SETTING}/retryLimit": str(retries),
        f"{_SETTING}/retryPausePeriodDuration": "1s",
        f"{_SETTING}/failureGracePeriodDuration": "0s",
        f"{_SETTING}/deletionOnFailureGracePeriodDuration": "24h",
    }


# -- objects -------------------------------------------------------------------------------------


def _pod_groups(app: AppDef, name: str, opts: Opts, facts: Facts) -> Iterator[dict[str, Any]]:
    if opts.coscheduler_name:
        for i, role in enumerate(app.roles):
            yield build_pod_group(app, role, i, facts.namespace, name)


def build_pod_group(
    app: AppDef, role: Role, role_idx: int, namespace: str, app_id: str
) -> dict[str, Any]:
    """Builds the PodGroup with which a co-scheduler starts the pods of a role together."""
    labels = {**app_labels(app, app_id), "appwrapper.workload.codeflare.dev": app_id}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": f"{app_id}-pg{role_idx}", "namespace": namespace, "labels": labels},
        "spec": {"minMember": role.num_replicas},
    }


def build_service(app: AppDef, name: str, namespace: str, port: str) -> dict[str, Any]:
    """Builds the Service that gives pods DNS names, also before they are ready."""
    number = int(port)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": app_labels(app, name)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "ports": [{"port": number, "protocol": "TCP", "targetPort": number}],
            "selector": {LABEL_UNIQUE_NAME: name},
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    }


def get_port_for_service(app: AppDef) -> str:
    """Returns the last port that a role names, else that of torchrun."""
    ports = [port for role in app.roles for port in role.port_map.values()]
    port = ports[-1] if ports else int(DEFAULT_PORT)
    if 1 <= port <= 65535:
        return str(port)
    logger.warning("port %s is not one of 1 to 65535, the Service gets %s", port, DEFAULT_PORT)
    return DEFAULT_PORT


def _jobs(app: AppDef, name: str, opts: Opts, facts: Facts, ends: bool) -> Iterator[dict[str, Any]]:
    """Yields an Indexed Job for each role: the controller accepts at most eight pod templates."""
    options = _pod_options(opts)
    for i, role in enumerate(app.roles):
        # the AppWrapper does the retries, not the Job
        inner = copy.copy(role)
        inner.max_retries, inner.min_replicas = 0, None
        job = job_name(name, i, len(app.roles))
        hosts = _hosts(app, name, i)
        first = i == 0 and role.num_replicas == 1
        rank0 = "localhost" if first else next(iter(hosts.values()))
        texts = Texts(name, role.num_replicas)
        pod = build_indexed_pod(inner, texts, job, rank0, options, first=i == 0)
        env = pod["spec"]["containers"][0]["env"]
        env += [{"name": key, "value": v} for key, v in hosts.items() if key not in role.env]
        pod["spec"]["subdomain"] = name
        add_extras(pod, opts)
        lay_over(pod, facts.overlays.get(role.name) or {}, role.name)
        labels = _labels_of_pods(app, name, i, opts)
        pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **labels}
        yield {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": job, "namespace": facts.namespace, "labels": labels},
            "spec": {**build_job_spec(inner, limits_of_failures(inner, ends)), "template": pod},
        }


def _pods(app: AppDef, name: str, opts: Opts, facts: Facts) -> Iterator[dict[str, Any]]:
    """Yields a pod for each replica. Equal parts of a role are the same object."""
    options = _pod_options(opts)
    rank0 = host_variable(app.roles[0].name)
    for i, role in enumerate(app.roles):
        hosts = _hosts(app, name, i)
        labels = _labels_of_pods(app, name, i, opts)
        for replica in expand_with_first(role, name, rank0, first=i == 0):
            pod = pod_name(name, i, len(app.roles), replica.k)
            body = build_pod(role, replica, pod, hosts, options, name, facts.namespace)
            add_extras(body, opts)
            if i == 0 and replica.k == 0:
                _add_rank0(body)
            lay_over(body, facts.overlays.get(role.name) or {}, role.name)
            own = body["metadata"].get("labels") or {}
            body["metadata"]["labels"] = {**own, **labels, LABEL_REPLICA_ID: str(replica.k)}
            yield body


def _pod_options(opts: Opts) -> PodOptions:
    return PodOptions(
        service_account=opts.service_account,
        priority_class=opts.priority_class_name,
        pull_secrets=(opts.image_secret,) if opts.image_secret else (),
        grace_s=opts.grace_s,
        gpu_resource=opts.gpu_resource,
    )


def _hosts(app: AppDef, name: str, index: int) -> dict[str, str]:
    """Returns variables with the first hosts of the first role and of another one."""
    found: dict[str, str] = {}
    for i in (0, index):
        variable = host_variable(app.roles[i].name)
        found.setdefault(variable, f"{pod_name(name, i, len(app.roles), 0)}.{name}")
    return found


def _labels_of_pods(app: AppDef, name: str, index: int, opts: Opts) -> dict[str, str]:
    labels = role_labels(app, index, name)
    if opts.coscheduler_name:
        labels[_POD_GROUP_LABEL] = f"{name}-pg{index}"
    return labels


def add_extras(pod: dict[str, Any], opts: Opts) -> None:
    """Adds the fields of options that only this scheduler has."""
    if opts.network is not None:
        pod["metadata"]["annotations"][_NETWORKS] = opts.network
    if opts.coscheduler_name:
        pod["spec"]["schedulerName"] = opts.coscheduler_name


def build_pod(
    role: Role,
    replica: Replica,
    name: str,
    hosts: Mapping[str, str],
    options: PodOptions,
    app_id: str,
    namespace: str,
) -> dict[str, Any]:
    """Builds the pod of one replica, without labels.

    Args:
        hosts: variables with hosts of other replicas.
    """
    env = [{"name": key, "value": escaped(value)} for key, value in replica.env.items()]
    env += [{"name": key, "value": v} for key, v in hosts.items() if key not in replica.env]
    command = [escaped(word) for word in (role.entrypoint, *replica.args)]
    main, volumes = build_main(role, name, command, env, options)
    annotations = {ANNOTATION_ISTIO_SIDECAR: "false"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "hostname": name,
            "subdomain": app_id,
            "containers": [main],
            "volumes": volumes,
            "nodeSelector": {},
            **build_placement(role, options),
        },
    }


def _add_rank0(pod: dict[str, Any]) -> None:
    env = pod["spec"]["containers"][0]["env"]
    if not any(variable["name"] == ENV_TORCHX_RANK0_HOST for variable in env):
        env.append({"name": ENV_TORCHX_RANK0_HOST, "value": "localhost"})
