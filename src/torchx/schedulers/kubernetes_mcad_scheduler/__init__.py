"""Runs apps as AppWrappers of a Kubernetes cluster: the scheduler ``kubernetes_mcad``."""

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
    RESERVED_MEMMB,
    RESERVED_MILLICPU,
)

from ._compat import (
    KubernetesMCADOpts,
    app_to_resource,
    create_pod_group,
    get_appwrapper_status,
    get_role_information,
    get_tasks_status_description,
    mcad_svc,
    object_labels,
    pod_labels,
    role_to_pod,
)
from ._names import cleanup_str, get_unique_truncated_appid
from ._options import Opts
from ._request import KubernetesMCADJob, enable_retry, get_port_for_service
from ._scheduler import KubernetesMCADScheduler, create_scheduler
from ._states import JOB_STATE, TASK_STATE

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
    "RESERVED_MEMMB",
    "RESERVED_MILLICPU",
    "TASK_STATE",
    "KubernetesMCADJob",
    "KubernetesMCADOpts",
    "KubernetesMCADScheduler",
    "Opts",
    "app_to_resource",
    "cleanup_str",
    "create_pod_group",
    "create_scheduler",
    "enable_retry",
    "get_appwrapper_status",
    "get_port_for_service",
    "get_role_information",
    "get_tasks_status_description",
    "get_unique_truncated_appid",
    "mcad_svc",
    "object_labels",
    "pod_labels",
    "role_to_pod",
    "sanitize_for_serialization",
]
