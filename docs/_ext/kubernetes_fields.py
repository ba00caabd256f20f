"""The table of what Kubernetes makes of each field of an app, by trying it out.

A field is changed, the objects are built again, and what differs is what becomes of the field.
"""

import copy
import dataclasses
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from torchx_docs import Table

from torchx.errors import TorchXError
from torchx.schedulers._core.checks import check_app
from torchx.schedulers._kube.apps.overlays import read_overlay
from torchx.schedulers.kubernetes_mcad_scheduler import _request as mcad
from torchx.schedulers.kubernetes_mcad_scheduler._options import Opts as McadOpts
from torchx.schedulers.kubernetes_mcad_scheduler._scheduler import FEATURES
from torchx.schedulers.kubernetes_scheduler import Opts
from torchx.schedulers.kubernetes_scheduler._kinds import KINDS
from torchx.schedulers.kubernetes_scheduler._plan import Facts
from torchx.schedulers.kubernetes_scheduler._request import build_request
from torchx.specs import AppDef, BindMount, Resource, RetryPolicy, Role

BEFORE = {
    "Role.workspace": "built into the image before",
    "Role.overrides": "filled in before",
}
"""Fields that are used up before any scheduler sees the app."""

HELD = {"Role.retry_policy": ("max_retries", 1)}
"""Fields that mean something only beside another one."""

CHANGES: dict[str, object] = {
    "AppDef.name": "other",
    "AppDef.roles": [Role("a", "i:1", entrypoint="run"), Role("b", "i:1", entrypoint="run")],
    "AppDef.metadata": {"kubernetes": {"spec": {"hostNetwork": True}}},
    "Role.name": "other",
    "Role.image": "i:2",
    "Role.min_replicas": 1,
    "Role.entrypoint": "other",
    "Role.args": ["--x"],
    "Role.env": {"A": "b"},
    "Role.num_replicas": 3,
    "Role.max_retries": 2,
    "Role.retry_policy": RetryPolicy.REPLICA,
    "Role.resource": Resource(cpu=1, gpu=0, memMB=64),
    "Role.port_map": {"http": 80},
    "Role.metadata": {"kubernetes": {"spec": {"hostNetwork": True}}},
    "Role.mounts": [BindMount("/a", "/b")],
    "Resource.cpu": 3,
    "Resource.gpu": 1,
    "Resource.memMB": 4000,
    "Resource.capabilities": {"node.kubernetes.io/instance-type": "p4d"},
    "Resource.devices": {"vpc.amazonaws.com/efa": 1},
    "Resource.tags": {"a": "b"},
}
"""Another value of each field."""

NOTE = "torchx.pytorch.org/app"
MOST_PLACES = 3

Build = Callable[[AppDef], Any]


def _kubernetes(api: str) -> Build:
    def build(app: AppDef) -> Any:
        check_app(app, KINDS[api].features, "kubernetes")
        facts = Facts(overlays={r.name: read_overlay(r, app) for r in app.roles}, api=api)
        return build_request(app, f"{app.name}-x1", Opts(), facts).objects

    return build


def _mcad(version: str) -> Build:
    def build(app: AppDef) -> Any:
        check_app(app, FEATURES[version], "kubernetes_mcad")
        facts = mcad.Facts(overlays={r.name: read_overlay(r, app) for r in app.roles})
        opts = McadOpts(appwrapper_version=version)
        return [mcad.build_request(app, f"{app.name}-x1", opts, facts).resource]

    return build


BUILDS: dict[str, Build] = {
    **{f"`{api}`": _kubernetes(api) for api in KINDS},
    **{f"AppWrapper `{version}`": _mcad(version) for version in mcad.VERSIONS},
}
"""By the title of the column."""


def fields() -> list[str]:
    """All fields of an app."""
    classes = (AppDef, Role, Resource)
    return [f"{cls.__name__}.{f.name}" for cls in classes for f in dataclasses.fields(cls)]


def rows() -> list[list[str]]:
    """A row for each field: what becomes of it with each kind of objects."""
    found = []
    for field in fields():
        if field in BEFORE:
            cells = [BEFORE[field]] * len(BUILDS)
        else:
            cells = [cell(build, field) for build in BUILDS.values()]
        found.append([f"`{field}`", *compact(cells)])
    return found


def compact(cells: list[str]) -> list[str]:
    """What is the same as in the column before, as a word."""
    return [c if i == 0 or c != cells[i - 1] else "same" for i, c in enumerate(cells)]


def cell(build: Build, field: str) -> str:
    """What becomes of one field with one kind of objects."""
    base, other = plain_app(), plain_app()
    if field in HELD:
        for app in (base, other):
            setattr(app.roles[0], *HELD[field])
    change(other, field, CHANGES[field])
    logging.disable(logging.WARNING)  # what is left out is said to users, not to readers
    try:
        before, after = build(base), build(other)
    except TorchXError:
        return "refused"
    finally:
        logging.disable(logging.NOTSET)
    places = list(dict.fromkeys(differences(before, after)))
    if not places:
        return "no effect"
    shown = ", ".join(f"`{place}`" for place in places[:MOST_PLACES])
    return f"{shown} …" if len(places) > MOST_PLACES else shown


def plain_app() -> AppDef:
    """An app that has little."""
    resource = Resource(cpu=2, gpu=0, memMB=3000)
    return AppDef("app", [Role("a", "i:1", entrypoint="run", num_replicas=2, resource=resource)])


def change(app: AppDef, field: str, value: object) -> None:
    """Gives a field of an app, or of its first role, another value."""
    cls, _, name = field.partition(".")
    role = app.roles[0]
    target = {"AppDef": app, "Role": role, "Resource": role.resource}[cls]
    setattr(target, name, copy.deepcopy(value))


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Places at which two documents differ, those within pods as seen from the pod."""
    if before == after or path.endswith(NOTE):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                yield from differences(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from differences(one, other, f"{path}[]")
    else:
        yield short(path)


def short(path: str) -> str:
    """A place without the way to the pod and to its container."""
    for mark in ("template.spec.", "template.metadata."):
        _, found, rest = path.rpartition(mark)
        if found:
            path = rest if mark == "template.spec." else f"metadata.{rest}"
    path = re.sub(
        r"(labels|nodeSelector)\..*", r"\1", path.lstrip("[].").removeprefix("containers[].")
    )
    return path or "number of objects"


class KubernetesFields(Table):
    """Writes the table."""

    def run(self) -> list[nodes.Node]:
        return self.table(["field", *BUILDS], rows())


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("kubernetes-fields", KubernetesFields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
