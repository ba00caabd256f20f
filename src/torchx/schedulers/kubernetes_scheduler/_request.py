"""Builds the native request: one Indexed Job for each role, and a Service by which pods find each
other. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers._core.checks import ends_on_failure
from torchx.specs.api import AppDef, RetryPolicy, Role
from torchx.specs.overlays import apply_overlay
from torchx.version import __version__

from ._gate import build_gate, hold_pods
from ._names import app_name, container_name, job_names, label_value
from ._options import Opts
from ._pod import Texts, build_pod

LABEL_VERSION = "torchx.pytorch.org/version"
LABEL_APP_NAME = "torchx.pytorch.org/app-name"
LABEL_ROLE_INDEX = "torchx.pytorch.org/role-index"
LABEL_ROLE_NAME = "torchx.pytorch.org/role-name"
LABEL_REPLICA_ID = "torchx.pytorch.org/replica-id"
LABEL_KUBE_APP_NAME = "app.kubernetes.io/name"
LABEL_ORGANIZATION = "app.kubernetes.io/managed-by"
LABEL_UNIQUE_NAME = "app.kubernetes.io/instance"
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED_BY = "torchx.pytorch.org"
ANNOTATION_APP = "torchx.pytorch.org/app"
"""JSON of the app, on each of its Jobs: what any process needs to read it back."""
ANNOTATION_ENDED = "torchx.pytorch.org/ended"
"""On a Job that we end: ``cancelled`` or ``failed``."""
RESERVED_MILLICPU = 100
RESERVED_MEMMB = 1024
JOB_APIS = ("job",)
_PLANNED_APIS = ("jobset", "volcano")

logger = get_logger(__name__)


@dataclass(frozen=True)
class Facts:
    """What the request depends on and is not in the app.

    Args:
        overlays: fields of the pods, by role.
    """

    namespace: str = "default"
    overlays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(repr=False)
class KubernetesJob:
    """The native request of ``kubernetes``. Its text is the YAML of the objects.

    Args:
        jobs: in the order of the roles.
        service: ``None`` for a single replica.
        gate: made last, by which all Jobs start at once; ``None`` for a single one.
        context, kubeconfig: which cluster; ``None`` for the user's own choice.
    """

    name: str
    namespace: str
    jobs: list[dict[str, Any]]
    service: dict[str, Any] | None = None
    gate: dict[str, Any] | None = None
    context: str | None = None
    kubeconfig: str | None = None
    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def app_id(self) -> str:
        """By which the scheduler knows the app."""
        return f"{self.namespace}:{self.name}"

    @property
    def objects(self) -> list[dict[str, Any]]:
        """All objects, in the order in which they are made."""
        return [*self.jobs, *(obj for obj in (self.service, self.gate) if obj is not None)]

    def __repr__(self) -> str:
        return render_request(self)

    __str__ = __repr__


def render_request(job: KubernetesJob) -> str:
    """The objects as documents of YAML."""
    import yaml

    dumper: Any = type("Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})
    dumper.ignore_aliases = lambda self, data: True
    text = yaml.dump_all(
        job.objects, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 20
    )
    return str(text)


def build_request(app: AppDef, unique: str, opts: Opts, facts: Facts) -> KubernetesJob:
    """Builds the request of an app; the app is left as it is.

    Args:
        unique: name of the app with a random id at its end.

    Raises:
        InvalidInput: for options that there are not, and roles that no pod can be made of.
    """
    _check_options(opts)
    if not app.roles:
        raise InvalidInput(f"app `{app.name}` has no roles")
    for role in app.roles:
        if role.num_replicas < 1:
            msg = f"role `{role.name}` has {role.num_replicas} replicas, a Job needs one at least"
            raise InvalidInput(msg)
    name = app_name(unique)
    names = job_names(name, [(role.name, role.num_replicas) for role in app.roles])
    several = sum(role.num_replicas for role in app.roles) > 1
    _warn_of_retries(app, several)
    jobs = [
        _job(app, i, names, name, opts, facts, suspended=several or bool(opts.queue))
        for i in range(len(app.roles))
    ]
    service = _service(app, name, facts.namespace) if several else None
    gate = build_gate(name, facts.namespace, app_labels(app, name)) if len(jobs) > 1 else None
    return KubernetesJob(name, facts.namespace, jobs, service, gate, opts.context, opts.kubeconfig)


def _check_options(opts: Opts) -> None:
    if opts.job_api in _PLANNED_APIS:
        msg = f"option `job_api`: `{opts.job_api}` is not there yet, use: {', '.join(JOB_APIS)}"
        raise UnsupportedRequest(msg)
    if opts.job_api is not None and opts.job_api not in JOB_APIS:
        msg = f"option `job_api` is one of {', '.join(JOB_APIS)}, given: `{opts.job_api}`"
        raise InvalidInput(msg)
    for name in ("ttl_s", "active_deadline_s", "grace_s", "reserved_millicpu", "reserved_memmb"):
        value = getattr(opts, name)
        if value is not None and value < 0:
            raise InvalidInput(f"option `{name}` must not be negative, given: {value}")


def app_labels(app: AppDef, name: str) -> dict[str, str]:
    """Labels of every object of an app."""
    return {
        LABEL_VERSION: label_value(__version__),
        LABEL_APP_NAME: label_value(app.name),
        LABEL_KUBE_APP_NAME: label_value(app.name),
        LABEL_ORGANIZATION: MANAGED_BY,
        LABEL_UNIQUE_NAME: name,
    }


def role_labels(app: AppDef, index: int, name: str) -> dict[str, str]:
    """Labels of the Job of a role, and of its pods."""
    return {
        **app_labels(app, name),
        LABEL_ROLE_INDEX: str(index),
        LABEL_ROLE_NAME: label_value(app.roles[index].name),
    }


def _job(
    app: AppDef,
    index: int,
    names: list[str],
    name: str,
    opts: Opts,
    facts: Facts,
    *,
    suspended: bool,
) -> dict[str, Any]:
    role = app.roles[index]
    labels = role_labels(app, index, name)
    several = sum(other.num_replicas for other in app.roles) > 1
    single_first = index == 0 and role.num_replicas == 1
    rank0 = f"{names[0]}-0.{name}" if several and not single_first else "localhost"
    texts = Texts(name, role.num_replicas)
    pod = build_pod(role, texts, container_name(role.name), rank0, opts, first=index == 0)
    if several:
        pod["spec"]["subdomain"] = name
    _lay_over(pod, facts.overlays.get(role.name) or {})
    if len(app.roles) > 1:
        hold_pods(pod, container_name(role.name), name)
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **labels}
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": role.num_replicas,
        "parallelism": role.num_replicas,
        **_limits_of_failures(role, ends_on_failure(opts.on_failure)),
        "podFailurePolicy": _DISRUPTIONS_DO_NOT_COUNT,
        **_times(opts),
    }
    if suspended:
        spec["suspend"] = True
    queue = {LABEL_QUEUE: opts.queue} if opts.queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names[index],
            "namespace": facts.namespace,
            "labels": {**labels, **queue},
            "annotations": {ANNOTATION_APP: _noted(app, names, opts)},
        },
        "spec": {**spec, "template": pod},
    }


def _lay_over(pod: dict[str, Any], overlay: Mapping[str, Any]) -> None:
    """Puts the user's own fields into the pod."""
    if overlay:
        merged = {"metadata": pod["metadata"], "spec": pod["spec"]}
        apply_overlay(merged, dict(overlay))
        pod["metadata"], pod["spec"] = merged.get("metadata") or {}, merged.get("spec") or {}


_DISRUPTIONS_DO_NOT_COUNT = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}
"""Evicted or preempted pods are replaced, beside the retries."""


def _limits_of_failures(role: Role, end: bool) -> dict[str, int]:
    """How many failures the Job survives."""
    spare = 0
    if role.min_replicas is not None:
        spare = max(role.num_replicas - role.min_replicas, 0)
    if role.max_retries == 0 and end and spare == 0:
        return {"backoffLimit": 0}
    limits = {"backoffLimitPerIndex": role.max_retries}
    if end:
        limits["maxFailedIndexes"] = spare
    return limits


def _times(opts: Opts) -> dict[str, int]:
    times = {
        "ttlSecondsAfterFinished": opts.ttl_s,
        "activeDeadlineSeconds": opts.active_deadline_s,
    }
    return {name: value for name, value in times.items() if value is not None}


def _noted(app: AppDef, names: list[str], opts: Opts) -> str:
    roles = [
        {
            "name": role.name,
            "image": role.image,
            "replicas": role.num_replicas,
            "min": role.min_replicas,
            "retries": role.max_retries,
            "job": job,
        }
        for role, job in zip(app.roles, names, strict=True)
    ]
    noted = {"name": app.name, "end": ends_on_failure(opts.on_failure), "roles": roles}
    return json.dumps(noted, ensure_ascii=False, separators=(",", ":"))


def _service(app: AppDef, name: str, namespace: str) -> dict[str, Any]:
    """Gives the pods names in DNS, also before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": app_labels(app, name)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_ORGANIZATION: MANAGED_BY, LABEL_UNIQUE_NAME: name},
        },
    }


def _warn_of_retries(app: AppDef, several: bool) -> None:
    for role in app.roles:
        if several and role.max_retries > 0 and role.retry_policy is RetryPolicy.APPLICATION:
            logger.warning(
                "role `%s`: when a replica fails, its Job starts it again alone and not the whole "
                "application; retry policy REPLICA says so",
                role.name,
            )
