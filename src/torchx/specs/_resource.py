"""Resources: the requirements of a replica."""

from typing import Any

from torchx._resource_tags import IS_FRACTIONAL_TAG, RESOURCE_NAME_TAG
from torchx._startup.dataclass import field, light_dataclass


@light_dataclass
class Resource:
    """Requirements of one replica. Prefer named ones: ``resource(h="gpu.small")``.

    >>> Resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})

    Args:
        cpu: logical cores.
        gpu: GPUs.
        memMB: memory in MB.
        capabilities: further properties of the hardware, interpreted by schedulers.
        devices: number of each named device, for example ``{"vpc.amazonaws.com/efa": 1}``.
        tags: not interpreted by schedulers.
    """

    cpu: int
    gpu: int
    memMB: int
    capabilities: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    tags: dict[str, object] = field(default_factory=dict)

    @staticmethod
    def copy(original: "Resource", **capabilities: Any) -> "Resource":
        """Returns an independent copy of a resource with these capabilities added."""
        return Resource(
            cpu=original.cpu,
            gpu=original.gpu,
            memMB=original.memMB,
            capabilities={**original.capabilities, **capabilities},
            devices=dict(original.devices),
            tags=dict(original.tags),
        )

    def is_fractional(self) -> bool:
        """True if this is a fraction of a larger named resource."""
        return bool(self.tags.get(IS_FRACTIONAL_TAG))

    def get_resource_name(self) -> str | None:
        """Returns the name under which the resource is registered; ``None`` if it has none."""
        name = self.tags.get(RESOURCE_NAME_TAG)
        return None if name is None else str(name)


NULL_RESOURCE = Resource(cpu=-1, gpu=-1, memMB=-1)
"""Placeholder for: any resource."""
