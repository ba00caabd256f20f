"""Rules that the schema does not know: names, labels, quantities, what may change."""

import re
from collections.abc import Iterator
from typing import Any

from .kinds import JOBS, PODS, SERVICES, Kind
from .statuses import invalid

Object = dict[str, Any]
Causes = Iterator[tuple[str, str]]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[+-]?(\d+|\d+\.\d*|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE]?)")
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


def check(kind: Kind, obj: Object) -> None:
    """Raises what the server answers to an object that breaks a rule."""
    causes = list(_causes(kind, obj))
    if causes:
        group = f".{kind.group}" if kind.group else ""
        raise invalid(f"{kind.name}{group}", obj["metadata"].get("name", ""), causes)


def _causes(kind: Kind, obj: Object) -> Causes:
    yield from _metadata(kind, obj["metadata"])
    spec = obj.get("spec") or {}
    if kind is PODS:
        yield from _pod(spec, "spec")
    elif kind is JOBS:
        yield from _job(obj["metadata"]["name"], spec)


def _metadata(kind: Kind, metadata: Object, path: str = "metadata") -> Causes:
    name = metadata.get("name", "")
    pattern, limit = (_SERVICE, 63) if kind is SERVICES else (_SUBDOMAIN, 253)
    if name and (len(name) > limit or not pattern.fullmatch(name)):
        rule = "a DNS-1035 label" if kind is SERVICES else "a lowercase RFC 1123 subdomain"
        limit_text = f" and no more than {limit} characters"
        yield f"{path}.name", f'Invalid value: "{name}": must be {rule}{limit_text}'
    yield from _labels(metadata, path)


def _labels(metadata: Object, path: str) -> Causes:
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            prefix, _, name = key.rpartition("/")
            if len(name) > 63 or not _KEY.fullmatch(name) or (prefix and len(prefix) > 253):
                yield f"{path}.{field}", f'Invalid value: "{key}": name part must be valid'
            if field == "labels" and value and (len(value) > 63 or not _KEY.fullmatch(value)):
                yield f"{path}.labels", f'Invalid value: "{value}": a valid label must be valid'


def _pod(spec: Object, path: str) -> Causes:
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    yield from _names(volumes, f"{path}.volumes")
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    yield from _names([c.get("name", "") for c in containers], f"{path}.containers")
    for i, container in enumerate(spec.get("containers") or ()):
        yield from _container(container, f"{path}.containers[{i}]", set(volumes))
    for field in ("hostname", "subdomain"):
        value = spec.get(field)
        if value and (len(value) > 63 or not _LABEL.fullmatch(value)):
            yield f"{path}.{field}", f'Invalid value: "{value}": must be a lowercase RFC 1123 label'
    policy = spec.get("restartPolicy", "Always")
    if policy not in ("Always", "OnFailure", "Never"):
        yield f"{path}.restartPolicy", f'Unsupported value: "{policy}"'


def _names(names: list[str], path: str) -> Causes:
    for i, name in enumerate(names):
        if len(name) > 63 or not _LABEL.fullmatch(name):
            text = f'Invalid value: "{name}": must be a lowercase RFC 1123 label'
            yield f"{path}[{i}].name", text
        if name in names[:i]:
            yield f"{path}[{i}].name", f'Duplicate value: "{name}"'


def _container(container: Object, path: str, volumes: set[str]) -> Causes:
    if not container.get("image"):
        yield f"{path}.image", "Required value"
    for i, variable in enumerate(container.get("env") or ()):
        name = variable.get("name", "")
        if not name or "=" in name or not name.isprintable() or not name.isascii():
            yield f"{path}.env[{i}].name", f'Invalid value: "{name}": a valid name must be valid'
        if variable.get("value") and variable.get("valueFrom"):
            text = "Invalid value: may not be specified when `value` is not empty"
            yield f"{path}.env[{i}].valueFrom", text
    for i, mount in enumerate(container.get("volumeMounts") or ()):
        if mount["name"] not in volumes:
            yield f"{path}.volumeMounts[{i}].name", f'Not found: "{mount["name"]}"'
    paths = [mount["mountPath"] for mount in container.get("volumeMounts") or ()]
    for i, mounted in enumerate(paths):
        if mounted in paths[:i]:
            text = f'Invalid value: "{mounted}": must be unique'
            yield f"{path}.volumeMounts[{i}].mountPath", text
    for i, port in enumerate(container.get("ports") or ()):
        yield from _port(port, f"{path}.ports[{i}]")
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _port(port: Object, path: str) -> Causes:
    name = port.get("name")
    if name is not None and (len(name) > 15 or not _LABEL.fullmatch(name) or name.isdigit()):
        yield f"{path}.name", f'Invalid value: "{name}": must be no more than 15 characters'
    if not 1 <= port.get("containerPort", 0) <= 65535:
        number = port.get("containerPort")
        yield f"{path}.containerPort", f"Invalid value: {number}: must be between 1 and 65535"


def _resources(resources: Object, path: str) -> Causes:
    limits = resources.get("limits") or {}
    for field in ("limits", "requests"):
        for name, value in (resources.get(field) or {}).items():
            if not _QUANTITY.fullmatch(str(value)):
                yield f"{path}.{field}.{name}", f'Invalid value: "{value}": quantities must match'
                return
            if "/" in name and amount(value) != int(amount(value)):
                yield f"{path}.{field}.{name}", f'Invalid value: "{value}": must be an integer'
    for name, value in (resources.get("requests") or {}).items():
        if name in limits and amount(value) > amount(limits[name]):
            text = f'Invalid value: "{value}": must be less than or equal to {name} limit'
            yield f"{path}.requests", f"{text} of {limits[name]}"


def amount(quantity: object) -> float:
    """A quantity as a number."""
    text = str(quantity)
    for unit, factor in (*_BINARY.items(), *_UNITS.items()):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text.removesuffix("E")) * (1e18 if text.endswith("E") else 1)


def _job(name: str, spec: Object) -> Causes:
    template = spec.get("template") or {}
    yield from _labels(template.get("metadata") or {}, "spec.template.metadata")
    pod = template.get("spec") or {}
    yield from _pod(pod, "spec.template.spec")
    if pod.get("restartPolicy", "Always") == "Always":
        text = 'Required value: valid values: "OnFailure", "Never"'
        yield "spec.template.spec.restartPolicy", text
    indexed = spec.get("completionMode") == "Indexed"
    if indexed and spec.get("completions") is None:
        yield "spec.completions", "Required value: when completion mode is Indexed"
    last = f"{name}-{(spec.get('completions') or 1) - 1}"
    if indexed and (len(last) > 63 or not _LABEL.fullmatch(last)):
        text = (
            f'Invalid value: "{name}": will not able to create pod with invalid DNS label: {last}'
        )
        yield "metadata.name", text
    yield from _job_limits(spec, indexed)
    if spec.get("podFailurePolicy") and pod.get("restartPolicy") != "Never":
        text = 'Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is set'
        yield "spec.template.spec.restartPolicy", text


def _job_limits(spec: Object, indexed: bool) -> Causes:
    for field in ("completions", "parallelism", "backoffLimit", "backoffLimitPerIndex"):
        value = spec.get(field)
        if value is not None and value < 0:
            yield f"spec.{field}", f"Invalid value: {value}: must be greater than or equal to 0"
    if spec.get("backoffLimitPerIndex") is not None and not indexed:
        yield "spec.backoffLimitPerIndex", "Invalid value: requires indexed completion mode"
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        text = "Required value: when maxFailedIndexes is specified"
        yield "spec.backoffLimitPerIndex", text
    completions = spec.get("completions") or 0
    if (spec.get("maxFailedIndexes") or 0) > completions:
        text = f"Invalid value: {spec['maxFailedIndexes']}: must be less than or equal to"
        yield "spec.maxFailedIndexes", f"{text} {completions}"


_JOB_FIXED = (
    "completions",
    "template",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "successPolicy",
    "selector",
)
_POD_FREE = {"activeDeadlineSeconds", "tolerations", "nodeName", "terminationGracePeriodSeconds"}


def check_change(kind: Kind, before: Object, after: Object) -> None:
    """Raises what the server answers to a change of what cannot change."""
    old, new = before.get("spec") or {}, after.get("spec") or {}
    causes = []
    if kind is JOBS:
        causes = [
            (f"spec.{field}", "Invalid value: field is immutable")
            for field in _JOB_FIXED
            if old.get(field) != new.get(field)
        ]
    elif kind is PODS:
        keys = {key for key in (*old, *new) if old.get(key) != new.get(key)} - _POD_FREE
        images = [dict(c, image="") for c in old.get("containers") or ()]
        if "containers" in keys and images == [dict(c, image="") for c in new["containers"]]:
            keys.discard("containers")
        causes = [("spec", "Forbidden: pod updates may not change fields")] if keys else []
    if causes:
        group = f".{kind.group}" if kind.group else ""
        raise invalid(f"{kind.name}{group}", after["metadata"]["name"], causes)
