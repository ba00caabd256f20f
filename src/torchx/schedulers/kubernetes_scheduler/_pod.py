"""Builds the pod of a role: one template for all of its replicas. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from torchx.errors import InvalidInput, MountNotSupported
from torchx.settings import ENV_TORCHX_ATTEMPT, ENV_TORCHX_IMAGE, ENV_TORCHX_RANK0_HOST
from torchx.specs.api import BindMount, DeviceMount, Role, VolumeMount, macros

from ._options import Opts

PLACEHOLDER_FIELD_PATH = "[FIELD_PATH]"
"""Begins the value of a variable that is a field of the pod."""
ANNOTATION_ISTIO_SIDECAR = "sidecar.istio.io/inject"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
EFA_DEVICE = "vpc.amazonaws.com/efa"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"

_MARK = "\0"
"""Stands for the number of the replica until the rest is escaped; no text of a user has one."""
_EXPANDABLE = re.compile(r"\$(?=[$(]|\Z)")
RANK0_PREFIX = (
    f'[ "${INDEX_VARIABLE}" != 0 ] || export {ENV_TORCHX_RANK0_HOST}=localhost; exec "$@"'
)
"""Its own host name may not be known to the first replica yet when it starts."""


class Texts:
    """Fills in the macros of a role, for all of its replicas at once.

    >>> Texts("app-1", 2).fill("${app_id} ${replica_id} $(date)")
    'app-1 $(JOB_COMPLETION_INDEX) $$(date)'

    Args:
        replicas: of the role; the number of a single one is written in.
    """

    def __init__(self, app: str, replicas: int) -> None:
        number = _MARK if replicas > 1 else "0"
        self._values = macros.Values("", app, number, ENV_TORCHX_RANK0_HOST)
        self.indexed = False
        """A text refers to the number of the replica."""
        self.rank0 = False
        """A text refers to the variable with the first host."""

    def fill(self, text: str) -> str:
        """The text as it stands in a pod, which replaces ``$(NAME)``."""
        if "$" not in text:
            return text
        self.rank0 = self.rank0 or macros.rank0_env in text
        filled = self._values.substitute(text)
        parts = [_EXPANDABLE.sub("$$", part) for part in filled.split(_MARK)]
        if len(parts) > 1:
            self.indexed = True
        else:
            parts = [escaped(filled)]
        return f"$({INDEX_VARIABLE})".join(parts)


def escaped(text: str) -> str:
    """The text such that a pod leaves it as it is.

    >>> escaped("$(x) $x $$")
    '$$(x) $x $$$$'
    """
    return _EXPANDABLE.sub("$$", text)


def build_pod(
    role: Role, texts: Texts, container: str, rank0_host: str, opts: Opts, *, first: bool
) -> dict[str, Any]:
    """Metadata and spec of the pods of a role, without labels.

    Args:
        rank0_host: where the first replica of the app is found.
        first: it is the first role.
    """
    if not role.image:
        raise InvalidInput(f"role `{role.name}` has no image, which a pod needs")
    args = [texts.fill(word) for word in (role.entrypoint, *role.args)]
    env = build_env(role, texts, rank0_host)
    if first and role.num_replicas > 1 and texts.rank0:
        args = ["sh", "-c", RANK0_PREFIX, "sh", *args]
    volumes, mounts, privileged = build_mounts(role)
    main: dict[str, Any] = {
        "name": container,
        "image": role.image,
        "command": args,
        "env": env,
        "ports": [{"name": name, "containerPort": port} for name, port in role.port_map.items()],
        "resources": build_resources(role, opts),
        "volumeMounts": mounts,
        "securityContext": {"privileged": True} if privileged else {},
    }
    if opts.env_from_secret:
        main["envFrom"] = [{"secretRef": {"name": name}} for name in opts.env_from_secret]
    return {
        "metadata": {"annotations": {ANNOTATION_ISTIO_SIDECAR: "false"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [main],
            "volumes": volumes,
            **_placement(role, opts),
        },
    }


def _placement(role: Role, opts: Opts) -> dict[str, Any]:
    """Fields of the pod that only options and the resource decide; none for what is unset."""
    selector = dict(opts.node_selector or {})
    if LABEL_INSTANCE_TYPE in role.resource.capabilities:
        selector[LABEL_INSTANCE_TYPE] = str(role.resource.capabilities[LABEL_INSTANCE_TYPE])
    secrets = [
        *(opts.image_pull_secrets or ()),
        *([opts.image_secret] if opts.image_secret else ()),
    ]
    fields: dict[str, Any] = {
        "serviceAccountName": opts.service_account,
        "priorityClassName": opts.priority_class,
        "nodeSelector": selector or None,
        "imagePullSecrets": [{"name": name} for name in secrets] or None,
        "terminationGracePeriodSeconds": opts.grace_s,
    }
    return {name: value for name, value in fields.items() if value is not None}


def build_env(role: Role, texts: Texts, rank0_host: str) -> list[dict[str, Any]]:
    """Variables of the container; those that others refer to come first."""
    env = [
        _variable(name, value, texts)
        for name, value in {**role.env, ENV_TORCHX_IMAGE: role.image}.items()
    ]
    first: list[dict[str, Any]] = []
    if texts.indexed or role.num_replicas > 1:
        if INDEX_VARIABLE in role.env:
            msg = f"role `{role.name}`: the cluster sets the variable `{INDEX_VARIABLE}`"
            raise InvalidInput(f"{msg}, choose another name")
        first.append(_field(INDEX_VARIABLE, f"metadata.annotations['{INDEX_ANNOTATION}']"))
    if role.max_retries > 0 and ENV_TORCHX_ATTEMPT not in role.env:
        first.append(_field(ENV_TORCHX_ATTEMPT, f"metadata.annotations['{FAILURES_ANNOTATION}']"))
    if ENV_TORCHX_RANK0_HOST not in role.env:
        first.append({"name": ENV_TORCHX_RANK0_HOST, "value": rank0_host})
    return first + env


def _variable(name: str, value: str, texts: Texts) -> dict[str, Any]:
    if value.startswith(PLACEHOLDER_FIELD_PATH):
        return _field(name, value.removeprefix(PLACEHOLDER_FIELD_PATH))
    return {"name": name, "value": texts.fill(value)}


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def build_resources(role: Role, opts: Opts) -> dict[str, dict[str, str]]:
    """Limits and requests of a container; requests leave something to the node itself."""
    resource = role.resource
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    if resource.cpu > 0:
        millicpu = int(resource.cpu * 1000)
        limits["cpu"] = f"{millicpu}m"
        requests["cpu"] = f"{max(millicpu - opts.reserved_millicpu, 0)}m"
    if resource.memMB > 0:
        limits["memory"] = f"{int(resource.memMB)}M"
        requests["memory"] = f"{max(int(resource.memMB) - opts.reserved_memmb, 0)}M"
    if resource.gpu > 0:
        limits[opts.gpu_resource] = requests[opts.gpu_resource] = str(resource.gpu)
    for name, count in _devices(resource.devices, opts.efa_device_count).items():
        limits[name] = str(count)
    return {"limits": limits, "requests": requests}


def _devices(devices: Mapping[str, int], efa: int | None) -> dict[str, int]:
    found = dict(devices)
    if efa is not None:
        found[EFA_DEVICE] = efa
    if efa == 0:
        del found[EFA_DEVICE]
    return found


def build_mounts(role: Role) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """Volumes of the pod, mounts of its container, and whether that must be privileged."""
    volumes: list[dict[str, Any]] = [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]
    mounts: list[dict[str, Any]] = [{"name": "dshm", "mountPath": "/dev/shm"}]
    privileged = False
    for i, mount in enumerate(role.mounts):
        name = f"mount-{i}"
        match mount:
            case BindMount():
                volumes.append({"name": name, "hostPath": {"path": mount.src_path}})
                read_only = mount.read_only
            case VolumeMount():
                claim = {"claimName": mount.src}
                volumes.append({"name": name, "persistentVolumeClaim": claim})
                read_only = mount.read_only
            case DeviceMount():
                volumes.append({"name": name, "hostPath": {"path": mount.src_path}})
                read_only = not {"w", "m"} & {*mount.permissions}
                privileged = True  # pods have no field for devices of the host
            case _:
                msg = (
                    f"role `{role.name}`: {mount!r} is not a mount; "
                    "give a BindMount, VolumeMount or DeviceMount"
                )
                raise MountNotSupported(msg)
        mounts.append({"name": name, "mountPath": mount.dst_path, "readOnly": read_only})
    return volumes, mounts, privileged
