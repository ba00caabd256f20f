"""Builds one JobSet for the whole app, with an Indexed Job for each role. Pure."""

from typing import Any

from torchx.errors import UnsupportedRequest
from torchx.schedulers._kube.apps.app import note_app
from torchx.schedulers._kube.apps.indexed import (
    ATTEMPT_FIELD,
    Texts,
    build_job_spec,
    build_pod,
    limits_of_failures,
    limits_of_last_failure,
    spare_replicas,
)
from torchx.schedulers._kube.apps.labels import (
    ANNOTATION_APP,
    app_labels,
    container_name,
    role_labels,
)
from torchx.schedulers._kube.apps.pods import lay_over
from torchx.schedulers._kube.apps.snapshots import JOB_SET_RESTARTS_LABEL
from torchx.specs.api import RetryPolicy, Role

from ._indexed_job import deadline, ttl
from ._names import job_names
from ._plan import Plan

RESTART_FIELD = f"metadata.labels['{JOB_SET_RESTARTS_LABEL}']"


def build_job_set(plan: Plan) -> list[dict[str, Any]]:
    """Builds the JobSet, which creates its Service itself."""
    _check(plan)
    roles, name = plan.app.roles, plan.name
    counts = [(role.name, role.num_replicas) for role in roles]
    names = job_names(name, counts, reserved=len("-0-abcde"))  # includes the random suffix of pods
    names = [job.removeprefix(f"{name}-") for job in names]
    rank0 = f"{name}-{names[0]}-0-0.{name}" if plan.several else "localhost"
    spec: dict[str, Any] = {
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": name,
        },
        **_restarts(roles, names),
        **ttl(plan.opts),
        "replicatedJobs": [_replicated(plan, i, names, rank0) for i in range(len(roles))],
    }
    if plan.opts.queue:
        spec["suspend"] = True
    retries = [application_retries(roles) if _restarts_all(r) else r.max_retries for r in roles]
    note = note_app(plan.app, [name] * len(roles), plan.ends_on_failure, retries)
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {
                "name": name,
                "namespace": plan.facts.namespace,
                "labels": {**app_labels(plan.app, name), **plan.queue_label},
                "annotations": {ANNOTATION_APP: note},
            },
            "spec": spec,
        }
    ]


def _check(plan: Plan) -> None:
    for role in plan.app.roles:
        if spare_replicas(role):
            msg = f"role `{role.name}` has `min_replicas`, which a JobSet does not have"
            raise UnsupportedRequest(f"{msg}: use `job_api=job` or `job_api=volcano`")
    if not plan.ends_on_failure and len(plan.app.roles) > 1:
        msg = "a JobSet ends all of its roles when one fails: `on_failure=wait` needs `job_api=job`"
        raise UnsupportedRequest(msg)


def _replicated(plan: Plan, index: int, names: list[str], rank0: str) -> dict[str, Any]:
    role = plan.app.roles[index]
    single_first = index == 0 and role.num_replicas == 1
    pod = build_pod(
        role,
        Texts(plan.name, role.num_replicas),
        container_name(role.name),
        "localhost" if single_first else rank0,
        plan.pods,
        first=index == 0,
        attempt_field=RESTART_FIELD if _restarts_all(role) else ATTEMPT_FIELD,
    )
    lay_over(pod, plan.overlay(role.name), role.name)
    labels = role_labels(plan.app, index, plan.name)
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **labels}
    limits = _limits(role, plan.ends_on_failure)
    spec = {**build_job_spec(role, limits), **deadline(plan.opts), "template": pod}
    return {"name": names[index], "replicas": 1, "template": {"spec": spec}}


def _limits(role: Role, end: bool) -> dict[str, int]:
    """Returns the limits of a role's Job; restarts of the set are not retries within it."""
    if not _restarts_all(role):
        return limits_of_failures(role, end)
    return limits_of_last_failure(end)


def _restarts(roles: list[Role], names: list[str]) -> dict[str, Any]:
    """Builds the rules for the set after the failure of a Job."""
    retries = application_retries(roles)
    if not retries:
        return {}
    policy: dict[str, Any] = {"maxRestarts": retries}
    final = [name for role, name in zip(roles, names, strict=True) if not _restarts_all(role)]
    if final:
        rule = {"name": "final", "action": "FailJobSet", "targetReplicatedJobs": final}
        policy["rules"] = [rule]
    return {"failurePolicy": policy}


def _restarts_all(role: Role) -> bool:
    return role.max_retries > 0 and role.retry_policy is RetryPolicy.APPLICATION


def application_retries(roles: list[Role]) -> int:
    """Returns how often the whole app may restart: the least retries of a role with that policy."""
    return min((role.max_retries for role in roles if _restarts_all(role)), default=0)
