"""Polls all apps that coroutines wait for at once, from a few shared threads."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from torchx._outages import AWAY_S, Outage
from torchx.errors import BackendUnavailable
from torchx.schedulers.api import Scheduler, one_look

if TYPE_CHECKING:
    from torchx.schedulers.api import AppSnapshot

T = TypeVar("T")

THREADS = 16
"""Threads for all coroutines of a runner, whatever the number of apps."""
_SHORTEST_S = 0.05
_LONGEST_S = 1.0
"""Seconds after which new waiters are taken into account."""
_MISSED_S = 2.0
"""Seconds after which a scheduler that reports changes is polled anyway."""
_LOAD_FACTOR = 4
"""The pause after a query is at least this many times as long as the query."""


class Pool:
    """The threads that run the blocking calls of coroutines."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Runs a call in one of the threads and returns its result."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="torchx")
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    def close(self) -> None:
        """Lets the threads end; running calls are not waited for."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


class Poller:
    """Polls one scheduler for one event loop; each query covers all apps that are waited for."""

    def __init__(self, scheduler: "Scheduler[Any]", backend: str, pool: Pool) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._backend = backend
        self._outage = Outage(backend, AWAY_S)
        self._waiting: dict[str, list[asyncio.Future[AppSnapshot | None]]] = {}
        self._interval_s: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._ended_rest: set[str] = set()
        self._pause_s = 0.0
        self._looked_s: float | None = None

    async def next_look(self, app_id: str, interval_s: float) -> "AppSnapshot | None":
        """Returns the app's next snapshot; ``None`` if the scheduler does not know the app.

        Raises:
            BackendUnavailable: if it cannot be reached for some minutes.
        """
        future: asyncio.Future[AppSnapshot | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(app_id, []).append(future)
        self._interval_s[app_id] = interval_s
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._pace()
                await self._look()
                # waiters that got an answer may request the next one
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        except Exception as err:  # noqa: BLE001 - every waiter must get it
            self._fail(err)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        app_ids = [*self._waiting]
        try:
            found = await self._pool.call(self._snapshots, app_ids)
        except BackendUnavailable as err:
            self._looked_s = loop.time()
            self._outage.note(err)
            return
        self._outage.over()
        self._looked_s = loop.time()
        self._pause_s = max(_SHORTEST_S, _LOAD_FACTOR * (loop.time() - began_s))
        for app_id in app_ids:
            for future in self._waiting.pop(app_id, ()):
                if not future.done():  # it may have been cancelled
                    future.set_result(found.get(app_id))

    def _snapshots(self, app_ids: Sequence[str]) -> "Mapping[str, AppSnapshot]":
        with one_look(fresh=True):
            found = self._scheduler.look_many(app_ids)
            for app_id, snapshot in found.items():
                failed = snapshot.fatal is not None and not snapshot.terminal
                if failed and app_id not in self._ended_rest:
                    self._ended_rest.add(app_id)
                    self._scheduler.end_after_failure(app_id)
            return found

    async def _pace(self) -> None:
        """Returns when the next query is due, or as soon as something has changed."""
        loop = asyncio.get_running_loop()
        while self._looked_s is not None:
            since_s = loop.time() - self._looked_s
            wanted_s = min((self._interval_s.get(i, 1.0) for i in self._waiting), default=0.0)
            if self._hooked:  # changes between a query and the call of the hook are missed
                wanted_s = min(wanted_s, _MISSED_S)
            left_s = wanted_s - since_s
            if left_s <= 0:
                return
            if since_s < self._pause_s:
                await asyncio.sleep(min(self._pause_s - since_s, left_s))
            elif self._hooked:
                step_s = min(left_s, _LONGEST_S)
                before_s = loop.time()
                await self._pool.call(self._scheduler.wait_for_any_change, step_s)
                if loop.time() - before_s < step_s:
                    return
            else:
                await asyncio.sleep(min(left_s, _LONGEST_S))

    @property
    def _hooked(self) -> bool:
        own = type(self._scheduler).wait_for_any_change
        return own is not Scheduler.wait_for_any_change

    def _fail(self, err: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(err)
