"""Builds one Indexed Job for each role, and a Service by which pods find each other. Pure."""

from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.schedulers._kube.apps.app import note_app
from torchx.schedulers._kube.apps.gate import hold_pods
from torchx.schedulers._kube.apps.indexed import (
    Texts,
    build_job_spec,
    build_pod,
    limits_of_failures,
)
from torchx.schedulers._kube.apps.labels import (
    ANNOTATION_APP,
    LABEL_ORGANIZATION,
    LABEL_UNIQUE_NAME,
    MANAGED_BY,
    app_labels,
    container_name,
    role_labels,
)
from torchx.schedulers._kube.apps.pods import lay_over
from torchx.specs.api import RetryPolicy

from ._names import job_names
from ._options import Opts
from ._plan import Plan

logger = get_logger(__name__)


def build_jobs(plan: Plan) -> list[dict[str, Any]]:
    """Builds the Jobs of an app, in the order of its roles."""
    roles = plan.app.roles
    names = job_names(plan.name, [(role.name, role.num_replicas) for role in roles])
    _warn_of_retries(plan)
    suspended = plan.several or bool(plan.opts.queue)
    return [_job(plan, i, names, suspended=suspended) for i in range(len(roles))]


def _job(plan: Plan, index: int, names: list[str], *, suspended: bool) -> dict[str, Any]:
    role = plan.app.roles[index]
    labels = role_labels(plan.app, index, plan.name)
    single_first = index == 0 and role.num_replicas == 1
    rank0 = f"{names[0]}-0.{plan.name}" if plan.several and not single_first else "localhost"
    texts = Texts(plan.name, role.num_replicas)
    container = container_name(role.name)
    pod = build_pod(role, texts, container, rank0, plan.pods, first=index == 0)
    if plan.several:
        pod["spec"]["subdomain"] = plan.name
    lay_over(pod, plan.overlay(role.name), role.name)
    if len(names) > 1:
        hold_pods(pod, container, plan.name)
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **labels}
    spec = build_job_spec(role, limits_of_failures(role, plan.ends_on_failure))
    spec |= {**deadline(plan.opts), **ttl(plan.opts)}
    if suspended:
        spec["suspend"] = True
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names[index],
            "namespace": plan.facts.namespace,
            "labels": {**labels, **plan.queue_label},
            "annotations": {ANNOTATION_APP: note_app(plan.app, names, plan.ends_on_failure)},
        },
        "spec": {**spec, "template": pod},
    }


def deadline(opts: Opts) -> dict[str, int]:
    """Returns the time limit after which the cluster ends the app."""
    seconds = opts.active_deadline_s
    return {} if seconds is None else {"activeDeadlineSeconds": seconds}


def ttl(opts: Opts) -> dict[str, int]:
    """Returns the time after which the cluster deletes an ended app."""
    return {} if opts.ttl_s is None else {"ttlSecondsAfterFinished": opts.ttl_s}


def build_service(plan: Plan) -> dict[str, Any] | None:
    """Builds the Service that gives pods DNS names early; ``None`` for a single replica."""
    if not plan.several:
        return None
    name = plan.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": plan.facts.namespace,
            "labels": app_labels(plan.app, name),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_ORGANIZATION: MANAGED_BY, LABEL_UNIQUE_NAME: name},
        },
    }


def _warn_of_retries(plan: Plan) -> None:
    for role in plan.app.roles:
        again = role.max_retries > 0 and role.retry_policy is RetryPolicy.APPLICATION
        if plan.several and again:
            logger.warning(
                "role `%s`: when a replica fails, its Job starts it again alone and not the whole "
                "application; retry policy REPLICA says so, `job_api=jobset` and `job_api=volcano` "
                "start all again",
                role.name,
            )
