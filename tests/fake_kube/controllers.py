"""What all controllers share: a queue of objects to look at again, and pods made of templates."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from .kinds import PODS, Kind
from .statuses import ApiFailure
from .store import Change, Object, Store

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"

logger = logging.getLogger(__name__)

Key = tuple[str, str]


class Controller:
    """Looks at an object again whenever it, or something that it owns, has changed.

    Args:
        kind: of the objects.
        owned: kinds of what they own.
    """

    def __init__(self, store: Store, kind: Kind, owned: tuple[Kind, ...]) -> None:
        self.store = store
        self.kind = kind
        self._owned = owned
        self._dirty: dict[Key, None] = {}
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        store.listeners.append(self._changed)
        self._spawn(self._work())

    def sync(self, obj: Object) -> None:
        """Does what the object asks for; called again after each change."""
        raise NotImplementedError

    def gone(self, obj: Object) -> None:
        """Told when the object was deleted."""

    def again(self, key: Key, delay_s: float) -> None:
        """Looks at an object again later."""
        self._spawn(self._later(key, delay_s))

    async def _later(self, key: Key, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self._mark(key)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _mark(self, key: Key) -> None:
        self._dirty[key] = None
        self._woken.set()

    def _changed(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        if change.kind is self.kind:
            if change.type == "DELETED":
                self.gone(change.obj)
            self._mark((metadata["namespace"], metadata["name"]))
        elif change.kind in self._owned:
            for owner in metadata.get("ownerReferences") or ():
                if owner["kind"] == self.kind.name and owner["apiVersion"] == self.kind.api_version:
                    self._mark((metadata["namespace"], owner["name"]))

    async def _work(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.sleep(0)  # more changes may be under way
            dirty, self._dirty = self._dirty, {}
            for key in dirty:
                obj = self.store.find(self.kind, *key)
                if obj is not None and "deletionTimestamp" not in obj["metadata"]:
                    self._sync_safely(obj)
                await asyncio.sleep(0)

    def _sync_safely(self, obj: Object) -> None:
        try:
            self.sync(obj)
        except ApiFailure as err:
            logger.warning("%s %s: %s", self.kind.name, obj["metadata"]["name"], err)

    async def close(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def owner_of(kind: Kind, obj: Object) -> list[Object]:
    """The reference that makes something owned by the object."""
    metadata = obj["metadata"]
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return [reference]


def pod_of(
    kind: Kind,
    owner: Object,
    template: Object,
    name: str,
    labels: dict[str, str],
    annotations: dict[str, str],
    adapt: Callable[[Object], Object] = lambda spec: spec,
) -> Object:
    """A pod made of a template."""
    meta = template.get("metadata") or {}
    spec = {"restartPolicy": "Always", "schedulerName": "default-scheduler", **template["spec"]}
    return {
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(meta.get("labels") or {}), **labels},
            "annotations": {**(meta.get("annotations") or {}), **annotations},
            "ownerReferences": owner_of(kind, owner),
        },
        "spec": adapt(spec),
        "status": {"phase": "Pending"},
    }


def with_env(spec: Object, variables: list[Object]) -> Object:
    """The spec with variables appended to each container that does not have them."""

    def extended(container: Object) -> Object:
        names = {variable["name"] for variable in container.get("env") or ()}
        added = [variable for variable in variables if variable["name"] not in names]
        return {**container, "env": [*(container.get("env") or ()), *added]}

    changed = {"containers": [extended(c) for c in spec["containers"]]}
    if spec.get("initContainers"):
        changed["initContainers"] = [extended(c) for c in spec["initContainers"]]
    return {**spec, **changed}


def suffix() -> str:
    """Five letters, as generated names have them."""
    return "".join(random.choices(_SUFFIX, k=5))


def active(pod: Object) -> bool:
    return phase(pod) not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def pods_of(store: Store, owner: Object) -> list[Object]:
    return store.owned(owner["metadata"]["uid"], PODS)
