"""What the builders of objects are given. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx.schedulers._core.checks import ends_on_failure
from torchx.schedulers._kube.apps.labels import LABEL_QUEUE
from torchx.specs.api import AppDef, Role

from ._options import Opts


@dataclass(frozen=True)
class Facts:
    """What the request depends on and is not in the app.

    Args:
        overlays: fields of the pods, by role.
        api: kind of objects that run the app.
    """

    namespace: str = "default"
    overlays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    api: str = "job"


@dataclass(frozen=True)
class Plan:
    """An app whose objects are to be built.

    Args:
        name: of the app in the cluster.
    """

    app: AppDef
    name: str
    opts: Opts
    facts: Facts

    @property
    def several(self) -> bool:
        """There are replicas that have to find each other."""
        return sum(role.num_replicas for role in self.app.roles) > 1

    @property
    def ends_on_failure(self) -> bool:
        """The others are ended when one replica has failed for good."""
        return ends_on_failure(self.opts.on_failure)

    @property
    def queue_label(self) -> dict[str, str]:
        """By which Kueue knows the objects; empty for no queue."""
        return {LABEL_QUEUE: self.opts.queue} if self.opts.queue else {}

    def overlay(self, role: str) -> Mapping[str, Any]:
        """The user's own fields of the pods of a role."""
        return self.facts.overlays.get(role) or {}


def spare_replicas(role: Role) -> int:
    """How many replicas of a role may fail."""
    if role.min_replicas is None:
        return 0
    return max(role.num_replicas - role.min_replicas, 0)
