"""Events: what components say about objects."""

from .kinds import EVENTS
from .store import Object, Store, now


class Recorder:
    """Writes Events into the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._count = 0

    def record(self, obj: Object, type_: str, reason: str, message: str, kind: str = "Pod") -> None:
        """Records an Event about an object."""
        self._count += 1
        metadata = obj["metadata"]
        self._store.create(
            EVENTS,
            {
                "metadata": {
                    "name": f"{metadata['name']}.{self._count:x}",
                    "namespace": metadata["namespace"],
                },
                "involvedObject": {
                    "kind": kind,
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
                "type": type_,
                "reason": reason,
                "message": message,
                "count": 1,
                "firstTimestamp": now(),
                "lastTimestamp": now(),
                "source": {"component": "fake"},
            },
        )
