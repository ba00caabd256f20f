"""Objects, their versions, and what happened to them."""

import json
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from .kinds import Kind
from .statuses import already_exists, conflict, not_found

Object = dict[str, Any]


def now() -> str:
    """The time as objects have it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Change:
    """One thing that happened; ``before`` is ``None`` for a new object."""

    version: int
    kind: Kind
    type: str
    obj: Object
    before: Object | None = None


@dataclass
class _Table:
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    texts: dict[tuple[str, str], bytes] = field(default_factory=dict)
    history: deque[Change] = field(default_factory=deque)
    forgotten: int = 0


class Store:
    """All objects. What is in it is never changed in place.

    Args:
        keep: changes of each kind that a watch can start from.
    """

    def __init__(self, keep: int = 20_000) -> None:
        self.version = 1000
        self.listeners: list[Callable[[Change], None]] = []
        self._keep = keep
        self._tables: dict[str, _Table] = {}
        self._owned: dict[str, set[tuple[Kind, str, str]]] = {}

    def _table(self, kind: Kind) -> _Table:
        return self._tables.setdefault(f"{kind.resource}/{kind.version}", _Table())

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._table(kind).objects.get((namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        obj = self.find(kind, namespace, name)
        if obj is None:
            raise not_found(kind.resource, name)
        return obj

    def all(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Those of a namespace, or of all, by name."""
        objects = self._table(kind).objects
        keys = sorted(key for key in objects if not namespace or key[0] == namespace)
        return [objects[key] for key in keys]

    def text(self, kind: Kind, obj: Object, *, in_list: bool = False) -> bytes:
        """The JSON of an object in the store, made once."""
        text = self._bare_text(kind, obj)
        return text if in_list and kind.typed else typed_text(kind, text)

    def _bare_text(self, kind: Kind, obj: Object) -> bytes:
        key = _key(obj)
        texts = self._table(kind).texts
        text = texts.get(key)
        if text is None:
            text = texts[key] = json.dumps(obj, separators=(",", ":")).encode()
        return text

    def owned(self, uid: str, kind: Kind) -> list[Object]:
        """What has this owner."""
        found = (
            self.find(k, namespace, name)
            for k, namespace, name in self._owned.get(uid, ())
            if k is kind
        )
        return [obj for obj in found if obj is not None]

    def create(self, kind: Kind, obj: Object) -> Object:
        key = _key(obj)
        table = self._table(kind)
        if key in table.objects:
            raise already_exists(kind.resource, key[1])
        obj = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}
        metadata = {
            **obj["metadata"],
            "uid": str(uuid.uuid4()),
            "creationTimestamp": now(),
            "generation": 1,
        }
        obj = {**obj, "metadata": metadata}
        for owner in metadata.get("ownerReferences") or ():
            self._owned.setdefault(owner["uid"], set()).add((kind, *key))
        return self._put(table, kind, "ADDED", obj, None)

    def replace(self, kind: Kind, obj: Object) -> Object:
        """Replaces an object of the same version; leaves an equal one alone."""
        key = _key(obj)
        table = self._table(kind)
        before = self.get(kind, *key)
        version = obj["metadata"].get("resourceVersion")
        if version and version != before["metadata"]["resourceVersion"]:
            raise conflict(kind.resource, key[1])
        obj = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}
        fixed = {k: before["metadata"][k] for k in ("uid", "creationTimestamp", "resourceVersion")}
        generation = before["metadata"].get("generation", 1)
        generation += obj.get("spec") != before.get("spec")
        obj = {**obj, "metadata": {**obj["metadata"], **fixed, "generation": generation}}
        if obj == before:
            return before
        return self._put(table, kind, "MODIFIED", obj, before)

    def change(self, kind: Kind, obj: Object, **parts: Any) -> Object:
        """Replaces top-level parts of what the store has under the object's name."""
        current = self.get(kind, *_key(obj))
        return self.replace(kind, {**current, **parts})

    def remove(self, kind: Kind, namespace: str, name: str) -> Object:
        obj = self.get(kind, namespace, name)
        table = self._table(kind)
        del table.objects[namespace, name]
        table.texts.pop((namespace, name), None)
        for owner in obj["metadata"].get("ownerReferences") or ():
            self._owned.get(owner["uid"], set()).discard((kind, namespace, name))
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        self._tell(table, Change(self.version, kind, "DELETED", {**obj, "metadata": metadata}, obj))
        return obj

    def _put(
        self, table: _Table, kind: Kind, type_: str, obj: Object, before: Object | None
    ) -> Object:
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        key = _key(obj)
        table.objects[key] = obj
        table.texts.pop(key, None)
        self._tell(table, Change(self.version, kind, type_, obj, before))
        return obj

    def _tell(self, table: _Table, change: Change) -> None:
        table.history.append(change)
        while len(table.history) > self._keep:
            table.forgotten = table.history.popleft().version
        for listener in [*self.listeners]:
            listener(change)

    def since(self, kind: Kind, version: int) -> Iterable[Change] | None:
        """What happened after a version; ``None`` if that is forgotten."""
        table = self._table(kind)
        if version < table.forgotten:
            return None
        return _later(table.history, version)

    def compact(self) -> None:
        """Forgets all that happened, as a real server does after some minutes."""
        for table in self._tables.values():
            table.history.clear()
            table.forgotten = self.version


def typed_text(kind: Kind, text: bytes) -> bytes:
    """The JSON of an object with its kind, which the store leaves out."""
    return b'{"kind":"%s","apiVersion":"%s",%s' % (
        kind.name.encode(),
        kind.api_version.encode(),
        text[1:],
    )


def _later(history: "deque[Change]", version: int) -> Iterator[Change]:
    found = []
    for change in reversed(history):
        if change.version <= version:
            break
        found.append(change)
    return reversed(found)


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
