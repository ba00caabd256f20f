"""Waits for many jobs of one process with one call for all of them.

SageMaker describes jobs one by one. To wait for several, one query per interval lists the recently
modified jobs, and only those are described.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

Record = dict[str, Any]
Modified = Callable[[datetime], Mapping[str, datetime] | None]
"""Returns the jobs modified after a time, with their times; ``None`` if unavailable."""

MARGIN = timedelta(minutes=10)
"""Most seconds between the clocks of this machine and of AWS."""


class Watch:
    """The cached records of the jobs that are waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, int] = {}
        self._records: dict[str, Record] = {}
        self._asked_s = float("-inf")
        self._fresh: set[str] = set()
        """Jobs whose record was unchanged at the last query."""

    def note(self, name: str, record: Record | None) -> None:
        """Stores the result of a query of a job."""
        with self._lock:
            self._fresh.discard(name)
            if record is None:
                self._records.pop(name, None)
            else:
                self._records[name] = record

    def take_fresh(self, name: str) -> Record | None:
        """Returns the record if it is known to be current; once."""
        with self._lock:
            if name not in self._fresh:
                return None
            self._fresh.discard(name)
            return self._records.get(name)

    def wait(self, name: str, timeout_s: float, modified: Modified) -> None:
        """Waits; if there are other waits, then checks which jobs have changed."""
        with self._lock:
            self._waiting[name] = self._waiting.get(name, 0) + 1
        began_s = time.monotonic()
        try:
            time.sleep(timeout_s)
            with self._lock:
                # another wait may have sent the query already
                if len(self._waiting) > 1 and self._asked_s < began_s:
                    self._ask(modified)
        finally:
            with self._lock:
                self._waiting[name] -= 1
                if not self._waiting[name]:
                    del self._waiting[name]

    def forget(self, name: str) -> None:
        """Drops the record of a job that was changed."""
        with self._lock:
            self._fresh.discard(name)

    def _ask(self, modified: Modified) -> None:
        changes = modified(datetime.now(timezone.utc) - MARGIN)
        self._asked_s = time.monotonic()
        if changes is None:
            return
        for name in self._waiting:
            record = self._records.get(name)
            if record is None:
                continue
            known = record.get("LastModifiedTime")
            if known is not None and changes.get(name, known) == known:
                self._fresh.add(name)
            else:
                self._fresh.discard(name)
