"""What a replica needs of a machine."""

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
        devices: how many of each named device, ``{"vpc.amazonaws.com/efa": 1}`` for one.
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
        """A resource with these capabilities added; it shares nothing with the original."""
        return Resource(
            cpu=original.cpu,
            gpu=original.gpu,
            memMB=original.memMB,
            capabilities={**original.capabilities, **capabilities},
            devices=dict(original.devices),
            tags=dict(original.tags),
        )

    def is_fractional(self) -> bool:
        """Whether this is a slice of a larger named resource."""
        return bool(self.tags.get(IS_FRACTIONAL_TAG))

    def get_resource_name(self) -> str | None:
        """Name under which the resource is registered; ``None`` if it was made by hand."""
        name = self.tags.get(RESOURCE_NAME_TAG)
        return None if name is None else str(name)


NULL_RESOURCE = Resource(cpu=-1, gpu=-1, memMB=-1)
"""Stands for: the resource does not matter."""
