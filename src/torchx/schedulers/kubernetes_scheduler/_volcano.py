"""Builds one Job of Volcano for the whole app, with a task for each replica. Pure.

The format is that of the published package, which other tools use:
https://volcano.sh/en/docs/vcjob/.
"""

from collections.abc import Callable, Iterator
from typing import Any

from torchx.schedulers._core.replicas import Replica, expand_with_first
from torchx.schedulers._kube.apps.app import note_app
from torchx.schedulers._kube.apps.indexed import check_image, spare_replicas
from torchx.schedulers._kube.apps.labels import (
    ANNOTATION_APP,
    LABEL_REPLICA_ID,
    app_labels,
    role_labels,
)
from torchx.schedulers._kube.apps.pods import (
    ANNOTATION_ISTIO_SIDECAR,
    PLACEHOLDER_FIELD_PATH,
    PodOptions,
    build_main,
    build_placement,
    escaped,
    field_variable,
    lay_over,
)
from torchx.schedulers._kube.apps.snapshots import VOLCANO_RETRIES_ANNOTATION
from torchx.settings import ENV_TORCHX_ATTEMPT, ENV_TORCHX_IMAGE, ENV_TORCHX_RANK0_HOST
from torchx.specs.api import RetryPolicy, Role

from ._indexed_job import ttl
from ._names import task_names
from ._plan import Plan

RETRY_POLICIES: dict[str, list[dict[str, str]]] = {
    RetryPolicy.REPLICA: [],
    RetryPolicy.APPLICATION: [
        {"event": "PodEvicted", "action": "RestartJob"},
        {"event": "PodFailed", "action": "RestartJob"},
    ],
}
"""Policies of the tasks of a role, as in the published package."""
_POLICIES = {
    **RETRY_POLICIES,
    RetryPolicy.REPLICA: [
        {"event": "PodEvicted", "action": "RestartTask"},
        {"event": "PodFailed", "action": "RestartTask"},
    ],
}
"""Without a policy, Volcano ignores a failed replica."""
_END_ALL = [{"event": "PodFailed", "action": "TerminateJob"}]


def build_volcano_job(plan: Plan) -> list[dict[str, Any]]:
    """Builds the Job, whose plugins create a Service and variables with the hosts of each task."""
    roles, name, opts = plan.app.roles, plan.name, plan.opts
    names = task_names(name, [(role.name, role.num_replicas) for role in roles])
    rank0 = f"VC_{names[0].upper().replace('-', '_')}_0_HOSTS"
    retries = volcano_retries(roles)
    spec: dict[str, Any] = {
        "schedulerName": "volcano",
        "queue": opts.queue or "default",
        "tasks": [t for i in range(len(roles)) for t in _tasks(plan, i, names[i], rank0)],
        # the last one ends the Job without a restart
        "maxRetry": retries + 1 if retries else 0,
        "plugins": {"svc": ["--publish-not-ready-addresses"], "env": []},
    }
    if opts.priority_class:
        spec["priorityClassName"] = opts.priority_class
    if plan.ends_on_failure and not any(map(spare_replicas, roles)):
        spec["policies"] = [dict(policy) for policy in _END_ALL]
    counts = [retries if role.max_retries else 0 for role in roles]
    note = note_app(plan.app, [name] * len(roles), plan.ends_on_failure, counts)
    return [
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": plan.facts.namespace,
                "labels": app_labels(plan.app, name),
                "annotations": {ANNOTATION_APP: note},
            },
            "spec": {**spec, **ttl(opts)},
        }
    ]


def volcano_retries(roles: list[Role]) -> int:
    """Returns how often the Job may restart tasks: the least retries of a role that has any."""
    return min((role.max_retries for role in roles if role.max_retries > 0), default=0)


def _tasks(plan: Plan, index: int, name: str, rank0: str) -> Iterator[dict[str, Any]]:
    """Yields a task for each replica of a role. Equal parts are the same object."""
    role = plan.app.roles[index]
    check_image(role)
    options = plan.pods
    main, volumes = build_main(role, "", [], [], options)
    placement = {"nodeSelector": {}, **build_placement(role, options)}
    placement.pop("priorityClassName", None)  # of the Job
    if plan.opts.active_deadline_s is not None:
        placement["activeDeadlineSeconds"] = plan.opts.active_deadline_s
    labels = role_labels(plan.app, index, plan.name)
    more: dict[str, Any] = {}
    if role.max_retries > 0:
        policies = [dict(policy) for policy in _POLICIES[role.retry_policy]]
        more = {"maxRetry": role.max_retries, "policies": policies}
    overlay = plan.overlay(role.name)
    for replica in expand_with_first(role, plan.name, rank0, first=index == 0):
        k = replica.k
        container = {
            **main,
            "name": f"{name}-{k}",
            "command": [escaped(word) for word in (role.entrypoint, *replica.args)],
            "env": _env(role, replica, first=index == 0 and k == 0),
        }
        pod = _pod(container, volumes, placement)
        lay_over(pod, overlay, role.name)
        own = pod["metadata"].get("labels") or {}
        pod["metadata"]["labels"] = {**own, **labels, LABEL_REPLICA_ID: str(k)}
        task = {"name": f"{name}-{k}", "replicas": 1, "template": pod, **more}
        if role.min_replicas is not None:
            task["minAvailable"] = 1 if k < role.min_replicas else 0
        yield task


def build_plain_pod(role: Role, name: str, options: PodOptions) -> dict[str, Any]:
    """Builds the pod of a role without filling in macros."""
    values = {**role.env, ENV_TORCHX_IMAGE: role.image}
    env = [_variable(key, value, lambda text: text) for key, value in values.items()]
    main, volumes = build_main(role, name, [role.entrypoint, *role.args], env, options)
    placement = {"nodeSelector": {}, **build_placement(role, options)}
    return _pod(main, volumes, placement)


def _pod(
    container: dict[str, Any], volumes: list[dict[str, Any]], placement: dict[str, Any]
) -> dict[str, Any]:
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": volumes, **placement}
    return {"metadata": {"annotations": {ANNOTATION_ISTIO_SIDECAR: "false"}}, "spec": spec}


def _variable(name: str, value: str, fill: Callable[[str], str]) -> dict[str, Any]:
    if value.startswith(PLACEHOLDER_FIELD_PATH):
        return field_variable(name, value.removeprefix(PLACEHOLDER_FIELD_PATH))
    return {"name": name, "value": fill(value)}


def _env(role: Role, replica: Replica, *, first: bool) -> list[dict[str, Any]]:
    values = replica.env
    env = [_variable(name, value, escaped) for name, value in values.items()]
    if first and ENV_TORCHX_RANK0_HOST not in values:
        env.append({"name": ENV_TORCHX_RANK0_HOST, "value": "localhost"})
    if role.max_retries > 0 and ENV_TORCHX_ATTEMPT not in values:
        field = f"metadata.annotations['{VOLCANO_RETRIES_ANNOTATION}']"
        env.append(field_variable(ENV_TORCHX_ATTEMPT, field))
    if ENV_TORCHX_IMAGE not in values:
        env.append({"name": ENV_TORCHX_IMAGE, "value": escaped(role.image)})
    return env
