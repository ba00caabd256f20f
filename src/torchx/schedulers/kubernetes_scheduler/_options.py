"""Options of ``kubernetes``."""

from torchx._startup.dataclass import light_dataclass
from torchx.schedulers.api import StructuredOpts


@light_dataclass
class Opts(StructuredOpts):
    queue: str | None = None
    """Queue to wait in: of Volcano, or a LocalQueue of Kueue for `job` and `jobset`."""

    namespace: str | None = None
    """Namespace of the objects; unset, that of the kubeconfig's context, else `default`."""

    service_account: str | None = None
    """Service account of the pods."""

    priority_class: str | None = None
    """PriorityClass of the pods."""

    validate_spec: bool = True
    """Let the API server check the objects in a dry run, if it can be reached."""

    reserved_millicpu: int = 100
    """How much less CPU is requested than the limit, in 1/1000 CPU, to leave room for the node."""

    reserved_memmb: int = 1024
    """How much less memory is requested than the limit, in MB, to leave room for the node."""

    efa_device_count: int | None = None
    """Number of EFA devices of each replica; unset, that of the resource; 0 for none."""

    job_api: str | None = None
    """Objects that run the app: `job` (a Job for each role), `jobset` (a JobSet) or `volcano` (a
    Job of Volcano). Unset means `job`; with `queue` what has queues there, Volcano first."""

    context: str | None = None
    """Context of the kubeconfig; unset, its current one."""

    kubeconfig: str | None = None
    """Path of a kubeconfig; unset, those of KUBECONFIG, else ~/.kube/config."""

    gpu_resource: str = "nvidia.com/gpu"
    """Name of the resource that `gpu` requests."""

    node_selector: dict[str, str] | None = None
    """Labels that the nodes must have. Example: pool:gpu,zone:a"""

    image_pull_secrets: list[str] | None = None
    """Secrets with the credentials of the images' registries."""

    image_secret: str | None = None
    """One more of these, as `kubernetes_mcad` calls it."""

    env_from_secret: list[str] | None = None
    """Secrets whose entries are environment variables of every replica."""

    ttl_s: int | None = None
    """Seconds after which the cluster deletes an app that has ended; unset, it is kept."""

    active_deadline_s: int | None = None
    """Seconds after which the cluster ends the app, which then counts as failed."""

    grace_s: int | None = None
    """Seconds between SIGTERM and SIGKILL when a replica is ended; unset, 30."""

    on_failure: str = "end"
    """What happens to the other replicas when one has failed for good: `end` ends them, those of
    other roles as long as `torchx run` or `Runner.wait` waits; `wait` lets them go on."""
