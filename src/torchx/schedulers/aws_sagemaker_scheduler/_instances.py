"""Chooses the instance type of a role. Pure."""

from torchx.errors import InvalidInput
from torchx.specs.api import Resource, Role
from torchx.specs.named_resources_aws import K8S_ITYPE, NAMED_RESOURCES, NEURON_DEVICE

PREFIX = "ml."
_NOT_IN_SAGEMAKER = ("m5d.", "inf2.", "m5.8xlarge", "m5.16xlarge")
_UNIT = 1024


def instance_types() -> dict[str, Resource]:
    """Returns the published types for training jobs, with their resources."""
    types = {name.removeprefix("aws_"): make for name, make in NAMED_RESOURCES.items()}
    return {
        PREFIX + name: make()
        for name, make in types.items()
        if not name.startswith(_NOT_IN_SAGEMAKER) and not name.endswith(".metal")
    }


def choose_instance_type(role: Role, given: str | None) -> str:
    """Returns the given type, that of the resource, or the smallest that fits the resource.

    Raises:
        InvalidInput: if the given one is too small, or no known one is large enough.
    """
    asked = role.resource
    if given is not None:
        if not given.startswith(PREFIX):
            msg = f"option `instance_type` begins with `{PREFIX}`: write `{PREFIX}{given}`"
            raise InvalidInput(msg)
        has = instance_types().get(given)
        if has is not None and not _holds(has, asked):
            msg = (
                f"role `{role.name}` asks for {_words(asked)}, and an instance `{given}` has"
                f" {_words(has)}: give a larger `instance_type`"
            )
            raise InvalidInput(msg)
        return given
    named = asked.capabilities.get(K8S_ITYPE)
    if named:
        return PREFIX + str(named).removeprefix(PREFIX)
    if max(asked.cpu, asked.gpu, asked.memMB) > 0:
        holding = [name for name, has in instance_types().items() if _holds(has, asked)]
        if holding:
            return min(holding, key=_size)
    msg = (
        f"the resource of role `{role.name}` ({_words(asked)}) does not name the type of"
        " instance: give the option `instance_type`, such as ml.g5.xlarge"
    )
    raise InvalidInput(msg)


def _holds(has: Resource, asked: Resource) -> bool:
    enough = has.cpu >= asked.cpu and has.gpu >= asked.gpu and has.memMB >= asked.memMB
    return enough and all(has.devices.get(name, 0) >= n for name, n in asked.devices.items())


def _size(name: str) -> tuple[int, int, int, int, str]:
    has = instance_types()[name]
    return has.gpu, has.devices.get(NEURON_DEVICE, 0), has.cpu, has.memMB, name


def _words(resource: Resource) -> str:
    if max(resource.cpu, resource.gpu, resource.memMB) <= 0 and not resource.devices:
        return "nothing given"
    parts = [f"{max(resource.cpu, 0)} CPUs", f"{max(resource.memMB, 0) // _UNIT} GiB"]
    if resource.gpu > 0:
        parts.append(f"{resource.gpu} GPU{'' if resource.gpu == 1 else 's'}")
    parts += [f"{n} {name}" for name, n in resource.devices.items()]
    return ", ".join(parts)
