"""Puts the parts together: store, API, controllers, node, faults, and the tests' own endpoints."""

import gzip
import json
from collections.abc import Callable
from typing import Any

from .api import Api, Settings, Target
from .app_wrappers import AppWrapperController
from .controllers import Controller
from .faults import Faults
from .http import Reply, Request, json_reply
from .job_sets import JobSetController
from .jobs import JobController
from .kinds import EXTENSIONS, PODS, Kind
from .kubelet import Kubelet
from .kueue import KueueController
from .logs_endpoint import read_log
from .statuses import ApiFailure
from .store import Object, Store
from .volcano import VolcanoController

CAPACITY = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"}
_COMPRESSED_FROM = 16 * 1024


class Cluster:
    """The whole thing; ``handle`` answers a request."""

    def __init__(self, keep: int, *, kubelet: bool) -> None:
        self.store = Store(keep)
        self.faults = Faults()
        self.api = Api(self.store, Settings(), self.faults)
        self.kubelet: Kubelet | None = None
        if kubelet:
            self.kubelet = Kubelet(self.store, CAPACITY, self._remove_pod)
            self.api.graceful = self.kubelet.owns
        self.api.subresource = self._subresource
        self.controllers: list[Controller] = [JobController(self.store, self.api.remove)]

    def install(self, operator: str) -> None:
        """Adds the kinds of an operator and starts its controller."""
        self.api.install(*EXTENSIONS[operator])
        store, remove = self.store, self.api.remove
        if operator == "jobset":
            self.controllers.append(JobSetController(store, remove))
        elif operator == "volcano":
            self.controllers.append(VolcanoController(store, remove))
        elif operator == "kueue":
            self.controllers.append(KueueController(store))
        else:
            kind = EXTENSIONS[operator][0]
            self.controllers.append(AppWrapperController(store, kind, self.api))

    async def close(self) -> None:
        for controller in self.controllers:
            await controller.close()
        if self.kubelet:
            await self.kubelet.close()

    async def handle(self, request: Request) -> Reply:
        """One request, with whatever fault it meets."""
        if request.path.startswith("/_fake/"):
            return self._admin(request)
        record, fault = self.faults.begin(request)
        try:
            await self.faults.before(request, fault)
            reply = self.api.answer(request)
        except ApiFailure as err:
            reply = err.reply()
        record.code = reply.code
        accepted = request.headers.get("accept-encoding", "")
        if self.api.settings.gzip and "gzip" in accepted and len(reply.body) > _COMPRESSED_FROM:
            reply.body = gzip.compress(reply.body, 1)
            reply.headers["Content-Encoding"] = "gzip"
        return await self.faults.after(reply, fault)

    def _subresource(self, request: Request, target: Target) -> Reply | None:
        if target.kind is PODS and target.subresource == "log":
            return read_log(self.store, self.kubelet, request, target)
        return None

    def _remove_pod(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self.store.remove(PODS, metadata["namespace"], metadata["name"])

    def _admin(self, request: Request) -> Reply:
        """What tests ask for beside the API."""
        what = request.path.removeprefix("/_fake/")
        if what == "reset":
            return json_reply(self._reset())
        if what == "requests":
            found = self.faults.requests()
            if request.method == "DELETE":
                self.faults.records.clear()
            return json_reply(found)
        actions: dict[str, Callable[[Any], object]] = {
            "faults": self._fault,
            "tokens": self._set_tokens,
            "compact": lambda _: self.store.compact(),
            "settings": self._set,
            "operators": self.install,
            "kinds": lambda body: self.api.install(Kind(**body)),
            "objects": self._load,
            "kill": self._kill,
            "capacity": self._set_capacity,
            "status": self._write_status,
        }
        if what not in actions:
            return Reply(404)
        actions[what](request.json())
        return json_reply({})

    def _fault(self, body: dict[str, Any] | None) -> None:
        if body is None:
            self.faults.faults.clear()
        else:
            self.faults.add(body)

    def _set_tokens(self, tokens: list[str]) -> None:
        self.faults.tokens = set(tokens)

    def _kill(self, body: dict[str, Any]) -> None:
        assert self.kubelet is not None
        self.kubelet.kill((body["namespace"], body["name"]), body.get("reason", "Error"))

    def _set_capacity(self, body: dict[str, str]) -> None:
        assert self.kubelet is not None
        self.kubelet.set_capacity(body)

    def _reset(self) -> int:
        """Number of pods whose processes have not ended yet."""
        if self.kubelet:
            self.kubelet.kill_all()
            self.kubelet.set_capacity(CAPACITY)
        self.faults.faults.clear()
        self.faults.tokens = set()
        self.api.settings = Settings()
        for kind in [*self.api.kinds.values()]:
            if kind.namespaced:
                for obj in self.store.all(kind):
                    metadata = obj["metadata"]
                    if self.store.find(kind, metadata["namespace"], metadata["name"]):
                        self.api.remove(kind, obj)
        self.faults.records.clear()
        return len(self.store.all(PODS))

    def _set(self, body: dict[str, Any]) -> None:
        settings = self.api.settings
        for key, value in body.items():
            if key == "forbidden":
                value = {tuple(pair) for pair in value}
            setattr(settings, key, value)

    def _load(self, body: dict[str, Any]) -> None:
        """Many objects of a template, whose ``%d`` becomes a number; nothing is checked."""
        kind = self.api.kinds[body["group"], body["version"], body["plural"]]
        text = json.dumps(body["template"])
        for number in range(body["count"]):
            obj = json.loads(text.replace("%d", str(number)))
            if kind is PODS:
                obj.setdefault("status", {"phase": "Pending"})
            self.store.create(kind, obj)

    def _write_status(self, body: dict[str, Any]) -> None:
        kind = self.api.kinds[body["group"], body["version"], body["plural"]]
        obj = self.store.get(kind, body["namespace"], body["name"])
        self.store.change(kind, obj, status=body["status"])
