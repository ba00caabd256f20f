"""Names of the published package."""

from collections.abc import Mapping, Sequence
from typing import Any

from torchx.schedulers._core.replicas import expand
from torchx.schedulers._kube.apps.labels import LABEL_REPLICA_ID, LABEL_ROLE_NAME, app_labels
from torchx.schedulers._kube.apps.labels import role_labels as _role_labels
from torchx.schedulers._kube.apps.official import to_official
from torchx.schedulers._kube.apps.pods import PodOptions
from torchx.specs.api import AppDef, AppState, BindMount, Resource, Role, VolumeMount

from ._names import cleanup_str, get_unique_truncated_appid, host_variable
from ._options import Opts
from ._request import (
    Facts,
    add_extras,
    build_pod,
    build_pod_group,
    build_request,
    build_service,
)
from ._states import wrapper_state

KubernetesMCADOpts = Opts
"""Name of the options in release 0.7."""


def app_to_resource(
    app: AppDef,
    namespace: str,
    service_account: str | None = None,
    image_secret: str | None = None,
    coscheduler_name: str | None = None,
    priority_class_name: str | None = None,
    network: str | None = None,
    priority: int | None = None,
) -> dict[str, Any]:
    """Builds the AppWrapper of an app, with a new name."""
    opts = Opts(
        service_account=service_account,
        image_secret=image_secret,
        coscheduler_name=coscheduler_name,
        priority_class_name=priority_class_name,
        network=network,
        priority=priority,
    )
    return build_request(app, get_unique_truncated_appid(app), opts, Facts(namespace)).resource


def role_to_pod(
    name: str,
    unique_app_id: str,
    namespace: str,
    role: Role,
    service_account: str | None,
    image_secret: str | None = None,
    coscheduler_name: str | None = None,
    priority_class_name: str | None = None,
    network: str | None = None,
) -> Any:
    """Builds the pod of a role's first replica, as the official client's ``V1Pod``.

    Raises:
        ModuleNotFoundError: without the package ``kubernetes``.
    """
    opts = Opts(
        service_account=service_account,
        coscheduler_name=coscheduler_name,
        priority_class_name=priority_class_name,
        network=network,
    )
    options = PodOptions(
        service_account=service_account,
        priority_class=priority_class_name,
        pull_secrets=(image_secret,) if image_secret else (),
    )
    replica = next(expand(role, unique_app_id, rank0_env=host_variable(role.name)))
    pod = cleanup_str(name)
    hosts = {host_variable(role.name): f"{unique_app_id}-0.{unique_app_id}"}
    body = build_pod(role, replica, pod, hosts, options, unique_app_id, namespace)
    add_extras(body, opts)
    return to_official(body, "V1Pod")


def create_pod_group(
    app: AppDef, role: Role, role_idx: int, namespace: str, app_id: str
) -> dict[str, Any]:
    """Builds the PodGroup of a role, as part of an AppWrapper."""
    group = build_pod_group(app, role, role_idx, namespace, app_id)
    return {"replicas": 1, "generictemplate": group}


def mcad_svc(app: AppDef, svc_name: str, namespace: str, service_port: str) -> Any:
    """Builds the Service of an app, as the official client's ``V1Service``.

    Raises:
        ModuleNotFoundError: without the package ``kubernetes``.
    """
    return to_official(build_service(app, svc_name, namespace, service_port), "V1Service")


def object_labels(app: AppDef, app_id: str) -> dict[str, str]:
    """Returns the labels of all objects of an app."""
    return app_labels(app, app_id)


def pod_labels(
    app: AppDef,
    role_idx: int,
    role: Role,
    replica_id: int,
    coscheduler_name: str | None,
    app_id: str,
) -> dict[str, str]:
    """Returns the labels of one replica."""
    labels = {**_role_labels(app, role_idx, app_id), LABEL_REPLICA_ID: str(replica_id)}
    if coscheduler_name is not None:
        labels["pod-group.scheduling.sigs.k8s.io"] = f"{app_id}-pg{role_idx}"
    return labels


def get_appwrapper_status(app: Mapping[str, Any]) -> AppState:
    """Returns the state of an AppWrapper from its status."""
    return wrapper_state({"metadata": {}, **app})


def get_tasks_status_description(status: Mapping[str, Any]) -> dict[str, int]:
    """Returns the number of pods in each state, from MCAD's counts."""
    names = ("running", "pending", "failed", "Succeeded")
    return {name: int(status[name]) for name in names if name in status}


def get_role_information(generic_items: Sequence[Mapping[str, Any]]) -> dict[str, Role]:
    """Returns the roles of an AppWrapper's pods, as far as the pods have the information."""
    roles: dict[str, Role] = {}
    for item in generic_items:
        template = item.get("generictemplate") or {}
        name = ((template.get("metadata") or {}).get("labels") or {}).get(LABEL_ROLE_NAME)
        if name in roles:
            roles[name].num_replicas += 1
        elif name is not None:
            roles[name] = _role_of(name, template.get("spec") or {})
    return roles


def _role_of(name: str, spec: Mapping[str, Any]) -> Role:
    main: Mapping[str, Any] = next(iter(spec.get("containers") or ()), {})
    role = Role(name=name, image=str(main.get("image") or ""))
    role.args = [*(main.get("command") or ())]
    role.env = {v["name"]: v["value"] for v in main.get("env") or () if "value" in v}
    role.port_map = {p["name"]: p["containerPort"] for p in main.get("ports") or ()}
    role.resource = _resource_of((main.get("resources") or {}).get("requests") or {})
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    for mount in main.get("volumeMounts") or ():
        volume = volumes.get(mount["name"]) or {}
        target, read_only = mount["mountPath"], bool(mount.get("readOnly"))
        if "hostPath" in volume:
            role.mounts.append(BindMount(volume["hostPath"]["path"], target, read_only))
        elif "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            role.mounts.append(VolumeMount(claim, target, read_only))
    return role


def _resource_of(requests: Mapping[str, str]) -> Resource:
    cpu, memory = str(requests.get("cpu", "-1")), str(requests.get("memory", "-1"))
    gpu = next((int(count) for name, count in requests.items() if "gpu" in name), 0)
    cores: Any = int(cpu[:-1]) / 1000 if cpu.endswith("m") else int(cpu)  # may be a fraction
    return Resource(cpu=cores, gpu=gpu, memMB=int(memory.removesuffix("M")))
