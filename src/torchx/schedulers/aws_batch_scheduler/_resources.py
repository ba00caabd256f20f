"""Converts resources of a role to the service's requirements, and back. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from torchx.errors import InvalidInput
from torchx.specs.api import Resource

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""Capability of a resource that names its instance type."""


class BeyondService(InvalidInput, AssertionError):
    """The service does not support the resource; release 0.7 raised ``AssertionError``."""


class ResourceType(str, Enum):
    """Kinds of resources that a container asks for."""

    VCPU = "VCPU"
    GPU = "GPU"
    MEMORY = "MEMORY"

    @staticmethod
    def from_str(text: str) -> "ResourceType":
        """Returns the kind of that name, ignoring case.

        >>> ResourceType.from_str("vcpu")
        <ResourceType.VCPU: 'VCPU'>

        Raises:
            InvalidInput: for another name.
        """
        try:
            return ResourceType[text.upper()]
        except KeyError:
            known = ", ".join(kind.name for kind in ResourceType)
            msg = f"`{text}` is no kind of resource, these are: {known}"
            raise InvalidInput(msg) from None


def resource_requirements_from_resource(resource: Resource) -> list[dict[str, str]]:
    """Returns the requirements of a container.

    >>> resource_requirements_from_resource(Resource(cpu=2, gpu=0, memMB=512))
    [{'type': 'VCPU', 'value': '2'}, {'type': 'MEMORY', 'value': '512'}]

    Raises:
        BeyondService: without memory, which the service needs to know.
    """
    if resource.memMB <= 0:
        msg = (
            "AWS Batch needs to know the memory of each role: give its resource a positive "
            f"`memMB`, given: {resource.memMB}"
        )
        raise BeyondService(msg)
    found = [_requirement("VCPU", resource.cpu if resource.cpu > 0 else 1)]
    found.append(_requirement("MEMORY", resource.memMB))
    if resource.gpu > 0:
        found.append(_requirement("GPU", resource.gpu))
    return found


def _requirement(kind: str, value: object) -> dict[str, str]:
    return {"type": kind, "value": str(value)}


def resource_from_resource_requirements(requirements: Iterable[Mapping[str, Any]]) -> Resource:
    """Returns the resource of requirements, which lack capabilities and devices.

    Raises:
        InvalidInput: if CPUs or memory are missing.
    """
    found = {ResourceType.from_str(r["type"]): str(r["value"]) for r in requirements}
    for kind in (ResourceType.VCPU, ResourceType.MEMORY):
        if kind not in found:
            raise InvalidInput(f"a container has no requirement {kind.name}")
    return Resource(
        cpu=math.ceil(float(found[ResourceType.VCPU])),  # a quarter of one, on Fargate
        memMB=int(found[ResourceType.MEMORY]),
        gpu=int(found.get(ResourceType.GPU, "0")),
    )


_FARGATE: Sequence[tuple[float, Sequence[int]]] = (
    (0.25, (512, 1024, 2048)),
    (0.5, range(1024, 4096 + 1, 1024)),
    (1, range(2048, 8192 + 1, 1024)),
    (2, range(4096, 16384 + 1, 1024)),
    (4, range(8192, 30720 + 1, 1024)),
    (8, range(16384, 61440 + 1, 4096)),
    (16, range(32768, 122880 + 1, 8192)),
)
"""Sizes of containers on Fargate: CPUs, and the possible memory in MB.
https://docs.aws.amazon.com/batch/latest/userguide/fargate.html"""


def fargate_requirements(resource: Resource) -> list[dict[str, str]]:
    """Returns the requirements of the smallest size on Fargate that fits the resource.

    >>> fargate_requirements(Resource(cpu=1, gpu=0, memMB=1000))
    [{'type': 'VCPU', 'value': '1'}, {'type': 'MEMORY', 'value': '2048'}]

    Raises:
        BeyondService: if there is none, or no memory is requested.
    """
    resource_requirements_from_resource(resource)
    if resource.gpu > 0:
        raise BeyondService("fargate has no GPUs: use `platform=ec2`")
    cpu = resource.cpu if resource.cpu > 0 else 1
    for size, memories in _FARGATE:
        fitting = [memory for memory in memories if memory >= resource.memMB]
        if size >= cpu and fitting:
            return [_requirement("VCPU", size), _requirement("MEMORY", fitting[0])]
    msg = (
        f"fargate has no container with {resource.cpu} CPUs and {resource.memMB} MB, the largest "
        "has 16 and 122880: use `platform=ec2`"
    )
    raise BeyondService(msg)
