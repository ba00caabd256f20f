"""Which kinds the server knows, and what each needs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of objects.

    Args:
        schema: name of its definition in the vendor's schema; empty for none.
        status: whether its status is a subresource, which a plain update leaves alone.
    """

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True
    schema: str = ""
    status: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def typed(self) -> bool:
        """Of the server itself: its lists do not repeat the kind in every item."""
        return bool(self.schema)

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _core(plural: str, name: str, namespaced: bool = True, status: bool = True) -> Kind:
    schema = f"io.k8s.api.core.v1.{name}"
    return Kind("", "v1", plural, name, namespaced, schema, status)


NAMESPACES = _core("namespaces", "Namespace", namespaced=False)
NODES = _core("nodes", "Node", namespaced=False)
PODS = _core("pods", "Pod")
SERVICES = _core("services", "Service")
EVENTS = _core("events", "Event", status=False)
CLAIMS = _core("persistentvolumeclaims", "PersistentVolumeClaim")
SECRETS = _core("secrets", "Secret", status=False)
CONFIG_MAPS = _core("configmaps", "ConfigMap", status=False)
JOBS = Kind("batch", "v1", "jobs", "Job", schema="io.k8s.api.batch.v1.Job")
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
VOLCANO_JOBS = Kind("batch.volcano.sh", "v1alpha1", "jobs", "Job")
VOLCANO_QUEUES = Kind("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
VOLCANO_COMMANDS = Kind("bus.volcano.sh", "v1alpha1", "commands", "Command", status=False)
WORKLOADS = Kind("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
LOCAL_QUEUES = Kind("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue")
MCAD_WRAPPERS = Kind("workload.codeflare.dev", "v1beta1", "appwrappers", "AppWrapper")
APP_WRAPPERS = Kind("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper")

CORE = (NAMESPACES, NODES, PODS, SERVICES, EVENTS, CLAIMS, SECRETS, CONFIG_MAPS, JOBS)
EXTENSIONS = {
    "jobset": (JOB_SETS,),
    "volcano": (VOLCANO_JOBS, VOLCANO_QUEUES, VOLCANO_COMMANDS),
    "kueue": (WORKLOADS, LOCAL_QUEUES),
    "mcad": (MCAD_WRAPPERS,),
    "appwrapper": (APP_WRAPPERS,),
}
"""What can be installed, by the name of the operator."""
