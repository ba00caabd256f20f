"""Runs apps as Jobs of a Kubernetes cluster: the scheduler ``kubernetes``."""

from torchx.schedulers._kube.apps.labels import (
    LABEL_APP_NAME,
    LABEL_KUBE_APP_NAME,
    LABEL_ORGANIZATION,
    LABEL_REPLICA_ID,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
    LABEL_UNIQUE_NAME,
    LABEL_VERSION,
)
from torchx.schedulers._kube.apps.official import to_plain as sanitize_for_serialization
from torchx.schedulers._kube.apps.pods import (
    ANNOTATION_ISTIO_SIDECAR,
    LABEL_INSTANCE_TYPE,
    PLACEHOLDER_FIELD_PATH,
    RESERVED_MEMMB,
    RESERVED_MILLICPU,
)
from torchx.schedulers.ids import make_unique

from ._compat import (
    KubernetesOpts,
    app_to_resource,
    pod_labels,
    prefix_container_name,
    role_to_pod,
)
from ._options import Opts
from ._request import KubernetesJob
from ._scheduler import KubernetesScheduler, create_scheduler
from ._states import JOB_STATE, TASK_STATE
from ._volcano import RETRY_POLICIES

__all__ = [
    "ANNOTATION_ISTIO_SIDECAR",
    "JOB_STATE",
    "LABEL_APP_NAME",
    "LABEL_INSTANCE_TYPE",
    "LABEL_KUBE_APP_NAME",
    "LABEL_ORGANIZATION",
    "LABEL_REPLICA_ID",
    "LABEL_ROLE_INDEX",
    "LABEL_ROLE_NAME",
    "LABEL_UNIQUE_NAME",
    "LABEL_VERSION",
    "PLACEHOLDER_FIELD_PATH",
    "RESERVED_MEMMB",
    "RESERVED_MILLICPU",
    "RETRY_POLICIES",
    "TASK_STATE",
    "KubernetesJob",
    "KubernetesOpts",
    "KubernetesScheduler",
    "Opts",
    "app_to_resource",
    "create_scheduler",
    "make_unique",
    "pod_labels",
    "prefix_container_name",
    "role_to_pod",
    "sanitize_for_serialization",
]
