"""Named resources that belong to no provider, for examples and defaults.

The numbers follow common hardware and may change between releases: register your own resources for
jobs that must keep running. They say nothing about interconnects and other devices.
"""

from collections.abc import Callable, Mapping

from torchx.specs._constants import GiB
from torchx.specs._resource import Resource

_TABLE = (
    # name, cpu, gpu, memory in MB
    ("gpu.small", 8, 1, 32 * GiB),
    ("gpu.medium", 16, 2, 64 * GiB),
    ("gpu.large", 32, 4, 128 * GiB),
    ("gpu.xlarge", 64, 8, 256 * GiB),
    ("cpu.nano", 1, 0, 512),
    ("cpu.micro", 1, 0, 1 * GiB),
    ("cpu.small", 1, 0, 2 * GiB),
    ("cpu.medium", 2, 0, 4 * GiB),
    ("cpu.large", 2, 0, 8 * GiB),
    ("cpu.xlarge", 8, 0, 32 * GiB),
)


def _factory(cpu: int, gpu: int, mem_mb: int) -> Callable[[], Resource]:
    return lambda: Resource(cpu=cpu, gpu=gpu, memMB=mem_mb)


NAMED_RESOURCES: Mapping[str, Callable[[], Resource]] = {
    name: _factory(*numbers) for name, *numbers in _TABLE
}
