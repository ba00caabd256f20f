"""The API itself: paths and verbs to the store."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import rules
from .faults import Faults
from .http import Reply, Request, json_reply
from .kinds import CORE, EVENTS, EXTENSIONS, NAMESPACES, PODS, Kind
from .patches import apply_patch
from .schema import LATEST, checked
from .selectors import Predicate, matcher
from .statuses import ApiFailure, bad_request, expired, forbidden, not_found
from .store import Object, Store, now, typed_text
from .watching import watch

_PATH = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>.+))?)?"
)
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_DROPPED_BEFORE = {
    (1, 29): ("backoffLimitPerIndex", "maxFailedIndexes"),
    (1, 31): ("successPolicy", "managedBy"),
}
"""Fields of Jobs that older servers drop in silence."""


@dataclass
class Settings:
    """How the cluster is."""

    version: tuple[int, int] = LATEST
    bookmark_s: float = 60.0
    watch_timeout_s: float = 2400.0
    user: str = "tester"
    gzip: bool = False
    """Whether large answers are compressed, as real servers do from 128 KiB on."""
    forbidden: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True)
class Target:
    """What a request is about."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


class Api:
    """Answers requests from the store.

    Args:
        graceful: told of pods that are to be deleted; it removes them when their processes ended.
        subresource: answers what is not plain objects, for instance logs.
    """

    def __init__(self, store: Store, settings: Settings, faults: Faults) -> None:
        self.store = store
        self.settings = settings
        self.faults = faults
        self.kinds: dict[tuple[str, str, str], Kind] = {}
        self.graceful: Callable[[Object], bool] = lambda _: False
        self.subresource: Callable[[Request, Target], Reply | None] = lambda *_: None
        self._handlers: dict[str, Callable[[Request, Target], Reply]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._deletecollection,
        }
        self.install(*CORE)
        for name in ("default", "kube-system"):
            store.create(NAMESPACES, {"metadata": {"name": name}})

    def install(self, *kinds: Kind) -> None:
        for kind in kinds:
            self.kinds[kind.group, kind.version, kind.plural] = kind

    def uninstall(self, operator: str) -> None:
        for kind in EXTENSIONS[operator]:
            self.kinds.pop((kind.group, kind.version, kind.plural), None)

    def answer(self, request: Request) -> Reply:
        """One request; raises ``ApiFailure`` for errors."""
        path = request.path.rstrip("/")
        if path in ("/version", "/api", "/apis", "/healthz", "/readyz", "/livez"):
            return self._discovery(path)
        if re.fullmatch(r"/api/[^/]+|/apis/[^/]+(/[^/]+)?", path):
            return self._resources(path)
        if path == _REVIEWS and request.method == "POST":
            return self._review(request.json())
        found = _PATH.fullmatch(path)
        key = (found["group"] or "", found["version"], found["plural"]) if found else None
        kind = self.kinds.get(key) if key else None
        if found is None or kind is None:
            return Reply(404, b"404 page not found\n", content_type="text/plain")
        target = Target(kind, found["namespace"] or "", found["name"] or "", found["sub"] or "")
        verb = _verb(request, target)
        resource = kind.resource + (f"/{target.subresource}" if target.subresource else "")
        if {(verb, resource), (verb, "*"), ("*", resource)} & self.settings.forbidden:
            raise forbidden(verb, resource, target.namespace, self.settings.user)
        if target.subresource not in ("", "status", "scale"):
            reply = self.subresource(request, target)
            if reply is None:
                raise not_found(resource, target.name)
            return reply
        return self._handlers[verb](request, target)

    def _review(self, review: dict[str, Any]) -> Reply:
        """Whether the user may do what is asked about."""
        asked = review["spec"]["resourceAttributes"]
        resource = ".".join(filter(None, [asked["resource"], asked.get("group")]))
        resource += f"/{asked['subresource']}" if asked.get("subresource") else ""
        refused = {(asked["verb"], resource), (asked["verb"], "*"), ("*", resource)}
        allowed = not refused & self.settings.forbidden
        return json_reply({**review, "status": {"allowed": allowed}}, 201)

    def _discovery(self, path: str) -> Reply:
        if path == "/version":
            major, minor = self.settings.version
            text = f"v{major}.{minor}.0"
            return json_reply({"major": str(major), "minor": f"{minor}+", "gitVersion": text})
        if path == "/api":
            return json_reply({"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            return json_reply(
                {"kind": "APIGroupList", "apiVersion": "v1", "groups": self._groups()}
            )
        return Reply(200, b"ok", content_type="text/plain")

    def _groups(self) -> list[dict[str, Any]]:
        versions: dict[str, list[str]] = {}
        for group, version, _ in self.kinds:
            if group and version not in versions.setdefault(group, []):
                versions[group].append(version)
        listed = []
        for group, names in versions.items():
            entries = [{"groupVersion": f"{group}/{name}", "version": name} for name in names]
            listed.append({"name": group, "versions": entries, "preferredVersion": entries[0]})
        return listed

    def _resources(self, path: str) -> Reply:
        _, api, *rest = path.split("/")
        group, version = (rest[0], "".join(rest[1:])) if api == "apis" else ("", rest[0])
        found = [k for k in self.kinds.values() if k.group == group]
        if not version and found:
            return json_reply(next(g for g in self._groups() if g["name"] == group))
        found = [k for k in found if k.version == version]
        if not found:
            return Reply(404, b"404 page not found\n", content_type="text/plain")
        verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        resources = [
            {"name": k.plural, "namespaced": k.namespaced, "kind": k.name, "verbs": verbs}
            for k in found
        ]
        groups = found[0].api_version
        return json_reply(
            {"kind": "APIResourceList", "groupVersion": groups, "resources": resources}
        )

    def _one(self, kind: Kind, obj: Object, code: int = 200) -> Reply:
        text = json.dumps(obj, separators=(",", ":")).encode()
        return Reply(code, typed_text(kind, text))

    def _get(self, request: Request, target: Target) -> Reply:
        obj = self.store.get(target.kind, target.namespace, target.name)
        return Reply(200, self.store.text(target.kind, obj))

    def _list(self, request: Request, target: Target) -> Reply:
        kind, store = target.kind, self.store
        chosen = self._chosen(request)
        there = [obj for obj in store.all(kind, target.namespace) if chosen(obj)]
        version = str(store.version)
        if token := request.query.get("continue"):
            try:
                version, *start = json.loads(base64.urlsafe_b64decode(token))
            except ValueError:
                raise expired("The provided continue parameter is too old") from None
            there = [obj for obj in there if _place(obj) > start]
        limit = int(request.query.get("limit") or 0) or len(there)
        page, rest = there[:limit], there[limit:]
        metadata: dict[str, Any] = {"resourceVersion": version}
        if rest:
            place = json.dumps([version, *_place(page[-1])]).encode()
            metadata["continue"] = base64.urlsafe_b64encode(place).decode()
            if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
                metadata["remainingItemCount"] = len(rest)
        head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
        items = b",".join(store.text(kind, obj, in_list=True) for obj in page)
        return Reply(200, json.dumps(head).encode()[:-1] + b',"items":[' + items + b"]}")

    def _chosen(self, request: Request) -> Predicate:
        query = request.query
        return matcher(query.get("labelSelector", ""), query.get("fieldSelector", ""))

    def _watch(self, request: Request, target: Target) -> Reply:
        query = request.query
        chosen = self._chosen(request)
        name = query.get("resourceVersion", "")
        if name and not name.isdigit():
            raise bad_request(f'invalid resource version "{name}"')
        asked_s = float(query.get("timeoutSeconds") or self.settings.watch_timeout_s)
        stream = watch(
            self.store,
            target.kind,
            target.namespace,
            chosen,
            name,
            bookmark_s=self.settings.bookmark_s if "allowWatchBookmarks" in query else None,
            timeout_s=min(asked_s, self.settings.watch_timeout_s),
        )
        return Reply(stream=stream)

    def _create(self, request: Request, target: Target) -> Reply:
        kind = target.kind
        obj = self._read(request, target)
        name = obj["metadata"].get("name")
        if not name:
            raise bad_request("name or generateName is required")
        if kind.namespaced and self.store.find(NAMESPACES, "", target.namespace) is None:
            raise not_found("namespaces", target.namespace)
        if kind.namespaced:
            obj["metadata"]["namespace"] = target.namespace
        obj = self._defaulted(kind, obj)
        rules.check(kind, obj)
        if request.query.get("dryRun"):
            if self.store.find(kind, target.namespace, name):
                self.store.create(kind, obj)  # raises
            return self._one(kind, obj, 201)
        return Reply(201, self.store.text(kind, self.store.create(kind, obj)))

    def _read(self, request: Request, target: Target) -> Object:
        """The object in the body, as far as the server knows its fields."""
        try:
            obj = request.json()
        except ValueError as err:
            raise bad_request(f"couldn't get version/kind; json parse error: {err}") from None
        kind = target.kind
        if obj.get("kind") != kind.name or obj.get("apiVersion") != kind.api_version:
            said = f"the API version in the data ({obj.get('apiVersion')}) does not match"
            raise bad_request(f"{said} the expected API version ({kind.api_version})")
        obj.setdefault("metadata", {})
        inside = obj["metadata"].get("namespace")
        if inside and target.namespace and inside != target.namespace:
            raise bad_request("the namespace of the object does not match that of the request")
        validation = request.query.get("fieldValidation", "Warn")
        obj = checked(kind, obj, self.settings.version, validation)
        return {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}

    def _defaulted(self, kind: Kind, obj: Object) -> Object:
        if kind.status and kind is not PODS:
            obj = {k: v for k, v in obj.items() if k != "status"}
        if kind is EVENTS or "spec" not in obj:
            return obj
        if kind.group == "batch":
            return {**obj, "spec": self._job_defaults(obj["spec"])}
        if kind is PODS:
            spec = {"restartPolicy": "Always", "schedulerName": "default-scheduler", **obj["spec"]}
            return {**obj, "spec": spec, "status": {"phase": "Pending", "qosClass": "BestEffort"}}
        return obj

    def _job_defaults(self, spec: Object) -> Object:
        gone = {
            name
            for version, names in _DROPPED_BEFORE.items()
            if self.settings.version < version
            for name in names
        }
        spec = {key: value for key, value in spec.items() if key not in gone}
        defaults = {"parallelism": 1, "completionMode": "NonIndexed", "suspend": False}
        per_index = spec.get("backoffLimitPerIndex") is not None
        defaults["backoffLimit"] = 2147483647 if per_index else 6
        if "completions" not in spec and "parallelism" not in spec:
            defaults["completions"] = 1
        return {**defaults, **spec}

    def _update(self, request: Request, target: Target) -> Reply:
        obj = self._read(request, target)
        if target.namespace:
            obj["metadata"].setdefault("namespace", target.namespace)
        return self._changed(request, target, obj)

    def _patch(self, request: Request, target: Target) -> Reply:
        kind = target.kind
        before = self.store.get(kind, target.namespace, target.name)
        whole = {"kind": kind.name, "apiVersion": kind.api_version, **before}
        obj = apply_patch(request.headers.get("content-type", ""), whole, request.json())
        obj = checked(kind, obj, self.settings.version, "Ignore")
        return self._changed(request, target, obj)

    def _changed(self, request: Request, target: Target, obj: Object) -> Reply:
        kind = target.kind
        before = self.store.get(kind, target.namespace, target.name)
        obj = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}
        if kind.status:
            if target.subresource == "status":
                obj = {**before, "status": obj.get("status", {})}
            elif "status" in before:
                obj = {**obj, "status": before["status"]}
            else:
                obj.pop("status", None)
        rules.check(kind, obj)
        rules.check_change(kind, before, obj)
        if request.query.get("dryRun"):
            return self._one(kind, obj)
        return Reply(200, self.store.text(kind, self.store.replace(kind, obj)))

    def _delete(self, request: Request, target: Target) -> Reply:
        obj = self.store.get(target.kind, target.namespace, target.name)
        options = request.json() or {}
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != obj["metadata"]["uid"]:
            raise ApiFailure(409, "Conflict", f"the UID in the precondition ({wanted}) differs")
        if not request.query.get("dryRun"):
            self.remove(target.kind, obj, _propagation(request, options))
        return json_reply({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _deletecollection(self, request: Request, target: Target) -> Reply:
        chosen = self._chosen(request)
        propagation = _propagation(request, request.json() or {})
        for obj in self.store.all(target.kind, target.namespace):
            if chosen(obj):
                self.remove(target.kind, obj, propagation)
        return json_reply({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def remove(self, kind: Kind, obj: Object, propagation: str = "Background") -> None:
        """Deletes an object and, unless orphaned, what it owns; pods end gracefully."""
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        if kind is PODS and self.graceful(obj):
            if "deletionTimestamp" not in metadata:
                marked = {**metadata, "deletionTimestamp": now()}
                self.store.change(kind, obj, metadata=marked)
            return
        if self.store.find(kind, namespace, name) is not None:
            self.store.remove(kind, namespace, name)
        if propagation != "Orphan":
            for owned_kind in list(self.kinds.values()):
                for owned in self.store.owned(metadata["uid"], owned_kind):
                    self.remove(owned_kind, owned, propagation)


def _verb(request: Request, target: Target) -> str:
    if request.method == "GET":
        if target.name:
            return "get"
        return "watch" if request.query.get("watch") in ("1", "true") else "list"
    if request.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch"}
    return verbs[request.method]


def _place(obj: Object) -> list[str]:
    return [obj["metadata"].get("namespace") or "", obj["metadata"]["name"]]


def _propagation(request: Request, options: dict[str, Any]) -> str:
    default = options.get("propagationPolicy") or "Background"
    return request.query.get("propagationPolicy") or str(default)
