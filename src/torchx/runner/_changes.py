"""The runner's methods that watch apps and yield after each change."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx.errors import BackendUnavailable
from torchx.runner._explaining import ExplainingVerbs
from torchx.schedulers.api import one_look
from torchx.specs.api import AppHandle, CfgVal, UnknownAppException

if TYPE_CHECKING:
    from torchx.schedulers.api import AppSnapshot, ListAppResponse

_AWAY_S = 150.0


class WatchVerbs(ExplainingVerbs):
    """Iterators over changes of apps."""

    def watch(self, app_handle: AppHandle, interval: float = 1.0) -> "Iterator[AppSnapshot]":
        """Yields snapshots of an app: one now, one after each change, and the last when it has
        ended.

        Args:
            interval: seconds between two polls of schedulers that do not report changes.

        Raises:
            UnknownAppException: at the call, if the scheduler does not know the app.
            BackendUnavailable: if the scheduler cannot be reached for some minutes.
        """
        first = self._look_anew(app_handle)
        if first is None:
            raise UnknownAppException(app_handle)
        return self._snapshots(app_handle, first, interval)

    def _look_anew(self, app_handle: AppHandle) -> "AppSnapshot | None":
        with one_look(fresh=True):
            return self.overview(app_handle)

    def _snapshots(
        self, app_handle: AppHandle, first: "AppSnapshot", interval: float
    ) -> "Iterator[AppSnapshot]":
        from torchx._outages import Outage
        from torchx.runner._watching import Pauses

        scheduler, app_id, backend = self._find(app_handle)
        pauses = Pauses(scheduler, app_id, interval)
        outage = Outage(backend, _AWAY_S)
        yield first
        last, changed = first, True
        while not last.terminal:
            pauses.pause(changed)
            try:
                found = self._look_anew(app_handle)
            except BackendUnavailable as err:
                outage.note(err)
                time.sleep(interval)
                continue
            outage.over()
            if found is None:
                return
            changed = visible(found) != visible(last)
            last = found
            if changed:
                yield found

    def watch_list(
        self,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        interval: float = 2.0,
    ) -> "Iterator[Sequence[ListAppResponse]]":
        """Yields the apps of a scheduler: now, and after each change, without end.

        Args:
            interval: seconds between two polls of schedulers that do not report changes.
        """
        from torchx._outages import Outage

        outage = Outage(scheduler, _AWAY_S)
        wait: Any = getattr(self._scheduler(scheduler), "wait_for_any_change", None)
        last: object = None
        while True:
            try:
                rows = self.list(scheduler, cfg)
                outage.over()
                now = [(row.app_handle, row.state, row.name) for row in rows]
                if now != last:
                    yield rows
                last = now
            except BackendUnavailable as err:
                outage.note(err)
            if wait is None:
                time.sleep(interval)
            else:
                wait(interval)

    # here for `watch_list`; the runner defines it
    def list(
        self, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> "list[ListAppResponse]":
        """Returns the apps that the scheduler knows, those of other sessions as well."""
        raise NotImplementedError


def visible(snapshot: "AppSnapshot") -> tuple[object, ...]:
    """Returns the parts of a snapshot whose change is shown to people: states and messages."""
    replicas = tuple((r.key, r.state, r.attempt, r.exit_code, r.reason) for r in snapshot.replicas)
    return snapshot.state, snapshot.cancelled, snapshot.message, snapshot.restarts, replicas
