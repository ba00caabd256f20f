"""Named devices of a resource as device mounts of a container."""

from collections.abc import Callable

from torchx.specs.api import DeviceMount


def to_devicemounts(num_devices: int, device_type: str) -> list[DeviceMount]:
    """Returns one mount per device, with the same path inside and outside: ``/dev/x0``, …

    >>> [m.dst_path for m in to_devicemounts(2, "/dev/x")]
    ['/dev/x0', '/dev/x1']
    """
    paths = [f"{device_type}{i}" for i in range(num_devices)]
    return [DeviceMount(src_path=path, dst_path=path) for path in paths]


def neuron_to_devicemounts(num_devices: int) -> list[DeviceMount]:
    """Returns mounts of AWS Neuron accelerators."""
    return to_devicemounts(num_devices, "/dev/neuron")


def efa_to_devicemounts(num_devices: int) -> list[DeviceMount]:
    """Returns mounts of AWS Elastic Fabric Adapters."""
    return to_devicemounts(num_devices, "/dev/infiniband/uverbs")


DEVICES: dict[str, Callable[[int], list[DeviceMount]]] = {
    "vpc.amazonaws.com/efa": efa_to_devicemounts,
    "aws.amazon.com/neurondevice": neuron_to_devicemounts,
}


def get_device_mounts(devices: dict[str, int]) -> list[DeviceMount]:
    """Returns mounts of all devices, in the order of the dict; warns of unknown names."""
    mounts: list[DeviceMount] = []
    for name, num_devices in devices.items():
        make = DEVICES.get(name)
        if make is None:
            import warnings

            known = ", ".join(DEVICES)
            warnings.warn(
                f"unknown device `{name}` is left out, known devices: {known}",
                UserWarning,
                stacklevel=2,
            )
            continue
        mounts += make(num_devices)
    return mounts
