"""The input of the builders of objects. Pure."""

from collections.abc import Mapping
from typing import Any

from torchx._startup.dataclass import field, light_dataclass
from torchx.schedulers._core.checks import ends_on_failure
from torchx.schedulers._kube.apps.labels import LABEL_QUEUE
from torchx.schedulers._kube.apps.pods import PodOptions
from torchx.specs.api import AppDef

from ._options import Opts


@light_dataclass(frozen=True)
class Facts:
    """Inputs of the request that are not in the app.

    Args:
        overlays: overlays of the pods, by role.
        api: kind of objects that run the app.
    """

    namespace: str = "default"
    overlays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    api: str = "job"


@light_dataclass(frozen=True)
class Plan:
    """An app whose objects are to be built.

    Args:
        name: name of the app in the cluster.
    """

    app: AppDef
    name: str
    opts: Opts
    facts: Facts

    @property
    def several(self) -> bool:
        """True if there are several replicas, which have to find each other."""
        return sum(role.num_replicas for role in self.app.roles) > 1

    @property
    def ends_on_failure(self) -> bool:
        """True if the others are ended when one replica has failed for good."""
        return ends_on_failure(self.opts.on_failure)

    @property
    def queue_label(self) -> dict[str, str]:
        """The label with the queue for Kueue; empty for no queue."""
        return {LABEL_QUEUE: self.opts.queue} if self.opts.queue else {}

    @property
    def pods(self) -> PodOptions:
        """The options that apply to pods."""
        opts = self.opts
        secret = [opts.image_secret] if opts.image_secret else []
        return PodOptions(
            service_account=opts.service_account,
            priority_class=opts.priority_class,
            node_selector=opts.node_selector,
            pull_secrets=(*(opts.image_pull_secrets or ()), *secret),
            env_from_secret=tuple(opts.env_from_secret or ()),
            grace_s=opts.grace_s,
            gpu_resource=opts.gpu_resource,
            reserved_millicpu=opts.reserved_millicpu,
            reserved_memmb=opts.reserved_memmb,
            efa_device_count=opts.efa_device_count,
        )

    def overlay(self, role: str) -> Mapping[str, Any]:
        """Returns the user's overlay of a role's pods."""
        return self.facts.overlays.get(role) or {}
