"""botocore's models of services: what a request or an answer must look like.

``problems("batch", "SubmitJob", params)`` is used by the fake server for all that it gets, and by
tests of what builds requests.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

import botocore.loaders
import botocore.model
import botocore.validate


@functools.cache
def service_model(service: str) -> botocore.model.ServiceModel:
    """The newest model of a service."""
    description = botocore.loaders.Loader().load_service_model(service, "service-2")
    return botocore.model.ServiceModel(description, service)


def problems(service: str, operation: str, params: dict[str, Any]) -> list[str]:
    """What does not fit the model in a request: unknown, missing and badly typed members, and
    texts beyond their pattern, length or list of values."""
    shape = service_model(service).operation_model(operation).input_shape
    return shape_problems(shape, params)


def shape_problems(shape: Any, value: Any) -> list[str]:
    """The same of any shape, such as that of an answer."""
    if shape is None:
        return [] if not value else [f"no members are known, given: {sorted(value)}"]
    report = botocore.validate.ParamValidator().validate(value, shape)
    found = report.generate_report().split("\n") if report.has_errors() else []
    return [*found, *_finer(shape, value, shape.name)]


def _finer(shape: Any, value: Any, where: str) -> Iterator[str]:
    """What botocore leaves to the service."""
    kind = shape.type_name
    if kind == "structure" and isinstance(value, dict):
        for name, member in shape.members.items():
            if value.get(name) is not None:
                yield from _finer(member, value[name], f"{where}.{name}")
    elif kind == "list" and isinstance(value, (list, tuple)):
        yield from _sized(shape, value, where)
        for i, item in enumerate(value):
            yield from _finer(shape.member, item, f"{where}[{i}]")
    elif kind == "map" and isinstance(value, dict):
        yield from _sized(shape, value, where)
        for key, item in value.items():
            yield from _finer(shape.key, key, f"{where} key {key!r}")
            yield from _finer(shape.value, item, f"{where}[{key!r}]")
    elif kind == "string" and isinstance(value, str):
        yield from _text(shape, value, where)
    elif kind in ("integer", "long") and isinstance(value, int):
        most = shape.metadata.get("max")
        if most is not None and value > most:
            yield f"{where}: {value} is more than {most}"


def _text(shape: Any, value: str, where: str) -> Iterator[str]:
    yield from _sized(shape, value, where)
    if shape.enum and value not in shape.enum:
        yield f"{where}: {value!r} is none of {shape.enum}"
    pattern = shape.metadata.get("pattern")
    if pattern and not _fits(pattern, value):
        yield f"{where}: {value!r} does not fit {pattern}"


def _fits(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error:
        return True  # written for Java, as with \p{L}


def _sized(shape: Any, value: Any, where: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if most is not None and len(value) > most:
        yield f"{where}: {len(value)} are more than {most}"
    if least is not None and len(value) < least:
        yield f"{where}: {len(value)} are fewer than {least}"


def assert_valid(service: str, operation: str, params: dict[str, Any]) -> None:
    """Fails a test whose request does not fit the model."""
    found = problems(service, operation, params)
    assert not found, f"{service}:{operation} does not fit botocore's model: {found}"
