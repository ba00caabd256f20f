"""Finds what a scheduler would refuse, drop or change of an app, by building requests.

A field is dropped if the request is the same without it, unless the features of the scheduler
declare that it honours the field in another way. So no list has to be maintained.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torchx._startup.dataclass import light_dataclass
from torchx.errors import TorchXError
from torchx.specs.api import NULL_RESOURCE, AppDef, RetryPolicy, Role

from .responses import SchedulerFeatures

REFUSED, DROPPED, CHANGED = "refused", "dropped", "changed"
_ID = re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz][bcdfghjklmnpqrstvwxz0-9]{11,15}")
"""A random id, which is new for each request."""
_MOST_REFUSALS = 10
_ERRORS = (TorchXError, ValueError, TypeError, KeyError, NotImplementedError)
"""Errors that refuse an app; schedulers of other packages have errors of their own."""

Build = Callable[[AppDef], str]
"""Returns the text of an app's request; raises what the scheduler raises."""


@light_dataclass(frozen=True)
class Finding:
    """A field that a scheduler refuses, drops or changes."""

    kind: str
    """``refused``, ``dropped`` or ``changed``."""
    role: str
    """Empty for a field of the app."""
    field: str
    text: str
    """The dropped value, the reason of the refusal, or the change."""

    def __str__(self) -> str:
        of = f" of role `{self.role}`" if self.role else ""
        return f"`{self.field}`{of}: {self.text}" if self.field else self.text


class _Field:
    """A field of a role that is set, and how to leave it out."""

    def __init__(self, name: str, value: object, without: Callable[[Role], Role]) -> None:
        self.name = name
        self.value = value
        self.without = without


def set_fields(role: Role) -> Iterator[_Field]:
    """Yields the fields of a role that are set and that a scheduler may not support."""
    if role.mounts:
        kinds = ", ".join(type(mount).__name__ for mount in role.mounts)
        yield _Field("mounts", kinds, lambda r: replace(r, mounts=[]))
    if role.port_map:
        yield _Field("port_map", dict(role.port_map), lambda r: replace(r, port_map={}))
    if role.max_retries > 0:
        yield _Field("max_retries", role.max_retries, lambda r: replace(r, max_retries=0))
    if role.min_replicas is not None and role.min_replicas != role.num_replicas:
        yield _Field("min_replicas", role.min_replicas, lambda r: replace(r, min_replicas=None))
    if role.resource is not NULL_RESOURCE and role.resource != NULL_RESOURCE:
        yield from _resource_fields(role)


def _resource_fields(role: Role) -> Iterator[_Field]:
    resource = role.resource
    for name in ("cpu", "gpu", "memMB"):
        value = getattr(resource, name)
        if value > 0:
            yield _Field(f"resource.{name}", value, _with_resource(**{name: 0}))
    for key, value in resource.capabilities.items():
        left = {k: v for k, v in resource.capabilities.items() if k != key}
        name = f"resource.capabilities[{key}]"
        yield _Field(name, value, _with_resource(capabilities=left))
    for key, count in resource.devices.items():
        left = {k: v for k, v in resource.devices.items() if k != key}
        yield _Field(f"resource.devices[{key}]", count, _with_resource(devices=left))


def _with_resource(**fields: Any) -> Callable[[Role], Role]:
    return lambda role: replace(role, resource=replace(role.resource, **fields))


def probe(app: AppDef, features: SchedulerFeatures | None, build: Build) -> list[Finding]:
    """Returns the fields that the scheduler refuses, drops or changes.

    Args:
        features: ``None`` for a scheduler that declares none.
    """
    findings, app, text = _refusals(app, build)
    if text is None:
        return findings
    for i, role in enumerate(app.roles):
        for field in set_fields(role):
            if features is not None and _honoured(field.name, role, features):
                continue
            if _built(build, _replaced(app, i, field.without(role))) == text:
                findings.append(Finding(DROPPED, role.name, field.name, f"{field.value}"))
    findings += _changes(app, features, build, text)
    return findings


def _refusals(app: AppDef, build: Build) -> tuple[list[Finding], AppDef, str | None]:
    """Returns the refusals, the app without the refused fields, and its request if there is one."""
    findings: list[Finding] = []
    for _ in range(_MOST_REFUSALS):
        try:
            return findings, app, _normal(build(app))
        except _ERRORS as err:
            cause = _cause(app, build, str(err))
            if cause is None:
                findings.append(Finding(REFUSED, "", "", str(err)))
                return findings, app, None
            i, field = cause
            findings.append(Finding(REFUSED, app.roles[i].name, field.name, str(err)))
            app = _replaced(app, i, field.without(app.roles[i]))
    return findings, app, None


def _cause(app: AppDef, build: Build, message: str) -> tuple[int, _Field] | None:
    """Returns the field whose removal changes or removes the refusal."""
    for i, role in enumerate(app.roles):
        for field in set_fields(role):
            try:
                build(_replaced(app, i, field.without(role)))
            except _ERRORS as err:
                if str(err) == message:
                    continue
            return i, field
    return None


def _honoured(name: str, role: Role, features: SchedulerFeatures) -> bool:
    """Returns True if the features declare the field: it may work without being in the request."""
    if name == "max_retries":
        return bool(features.retries)
    if name == "min_replicas":
        return features.min_replicas
    return name == "mounts" and features.mounts


def _changes(
    app: AppDef, features: SchedulerFeatures | None, build: Build, text: str
) -> Iterator[Finding]:
    if app.name and app.name not in text:
        yield Finding(CHANGED, "", "name", f"`{app.name}` is written in another way")
    for i, role in enumerate(app.roles):
        if role.name not in text:
            yield Finding(CHANGED, role.name, "name", "is written in another way")
        if role.max_retries > 0 and features is not None and features.retries:
            policy = RetryPolicy(role.retry_policy)
            if policy not in features.retries:
                known = " or ".join(p.name for p in RetryPolicy if p in features.retries)
                taken = f"{policy.name} is taken as {known}"
                yield Finding(CHANGED, role.name, "retry_policy", taken)
        yield from _rounded(app, i, build, text)


def _rounded(app: AppDef, i: int, build: Build, text: str) -> Iterator[Finding]:
    """Finds fractions of a CPU that become whole numbers."""
    role = app.roles[i]
    cpu = role.resource.cpu
    if cpu <= 0 or cpu == int(cpu):
        return
    same = [
        whole
        for whole in (int(cpu) + 1, int(cpu))
        if _built(build, _replaced(app, i, _with_resource(cpu=whole)(role))) == text
    ]
    if len(same) == 1:  # a scheduler that drops CPUs matches both
        taken = f"{cpu} is taken as {same[0]}"
        yield Finding(CHANGED, role.name, "resource.cpu", taken)


def _built(build: Build, app: AppDef) -> str | None:
    """Returns the request; ``None`` if the app is refused, which shows that the field matters."""
    try:
        return _normal(build(app))
    except _ERRORS:
        return None


def _replaced(app: AppDef, i: int, role: Role) -> AppDef:
    return AppDef(app.name, [*app.roles[:i], role, *app.roles[i + 1 :]], app.metadata)


def _normal(text: str) -> str:
    return _ID.sub("ID", text)


def as_data(findings: "list[Finding]") -> Mapping[str, list[dict[str, str]]]:
    """Returns the findings by kind, as plain data."""
    return {
        kind: [
            {"role": f.role, "field": f.field, "text": f.text} for f in findings if f.kind == kind
        ]
        for kind in (REFUSED, DROPPED, CHANGED)
    }
