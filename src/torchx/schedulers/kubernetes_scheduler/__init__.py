"""Runs apps as Jobs of a Kubernetes cluster: the scheduler ``kubernetes``."""

from ._compat import KubernetesOpts, pod_labels, sanitize_for_serialization
from ._options import Opts
from ._pod import ANNOTATION_ISTIO_SIDECAR, LABEL_INSTANCE_TYPE, PLACEHOLDER_FIELD_PATH
from ._request import (
    LABEL_APP_NAME,
    LABEL_KUBE_APP_NAME,
    LABEL_ORGANIZATION,
    LABEL_REPLICA_ID,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
    LABEL_UNIQUE_NAME,
    LABEL_VERSION,
    RESERVED_MEMMB,
    RESERVED_MILLICPU,
    KubernetesJob,
)
from ._scheduler import KubernetesScheduler, create_scheduler

__all__ = [
    "ANNOTATION_ISTIO_SIDECAR",
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
    "KubernetesJob",
    "KubernetesOpts",
    "KubernetesScheduler",
    "Opts",
    "create_scheduler",
    "pod_labels",
    "sanitize_for_serialization",
]
