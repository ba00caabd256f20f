"""Options of ``kubernetes_mcad``."""

from dataclasses import dataclass

from torchx.schedulers.api import StructuredOpts


@dataclass
class Opts(StructuredOpts):
    namespace: str | None = None
    """Namespace of the AppWrapper; unset, that of the kubeconfig's context, else `default`."""

    service_account: str | None = None
    """Service account of the pods."""

    priority: int | None = None
    """Priority of the AppWrapper: higher ones go first. For `v1beta1` only."""

    priority_class_name: str | None = None
    """PriorityClass of the pods."""

    image_secret: str | None = None
    """Secret with the credentials of the images' registry."""

    coscheduler_name: str | None = None
    """Scheduler of the pods; with it a PodGroup is created for each role."""

    network: str | None = None
    """Additional network of the pods, attached by Multus."""

    appwrapper_version: str = "v1beta1"
    """`v1beta1` is served by MCAD, `v1beta2` by the AppWrapper controller."""

    queue: str | None = None
    """LocalQueue of Kueue to wait in. For `v1beta2` only."""

    context: str | None = None
    """Context of the kubeconfig; unset, its current one."""

    kubeconfig: str | None = None
    """Path of a kubeconfig; unset, those of KUBECONFIG, else ~/.kube/config."""

    gpu_resource: str = "nvidia.com/gpu"
    """Name of the resource that `gpu` requests."""

    grace_s: int | None = None
    """Seconds between SIGTERM and SIGKILL when a replica is ended; unset, 30."""

    on_failure: str = "end"
    """What happens to the other replicas when one has failed for good: `end` ends them as long as
    `torchx run` or `Runner.wait` waits; `wait` lets them go on."""
