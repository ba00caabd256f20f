"""The runner's methods for coroutines, which hold no thread while they wait."""

import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torchx.runner._logs import LogVerbs
from torchx.schedulers.api import Scheduler, Stream
from torchx.specs.api import AppHandle, AppStatus, UnknownAppException

if TYPE_CHECKING:
    import asyncio
    from datetime import datetime

    from torchx.runner._polling import Poller, Pool

_BATCH = 1000


class AsyncVerbs(LogVerbs):
    """Awaitable forms of the methods that take long; 1,000 apps need no more threads than one.

    All coroutines of a runner share a few threads, and one query of a scheduler covers all apps
    that are waited for.
    """

    _pool_of_threads: "Pool | None" = None
    _pollers: "dict[tuple[asyncio.AbstractEventLoop, str], Poller]"

    @property
    def _pool(self) -> "Pool":
        if self._pool_of_threads is None:
            from torchx.runner._polling import Pool

            self._pool_of_threads = Pool()
        return self._pool_of_threads

    def close(self) -> None:
        """Closes every scheduler that was used, which ends the local jobs attached to them."""
        if self._pool_of_threads is not None:
            self._pool_of_threads.close()
            self._pool_of_threads = None
        super().close()

    async def status_async(self, app_handle: AppHandle) -> AppStatus | None:
        """Like ``status``."""
        return await self._pool.call(self.status, app_handle)

    async def wait_async(
        self, app_handle: AppHandle, wait_interval: float = 1.0
    ) -> AppStatus | None:
        """Like ``wait``, without its log messages.

        Args:
            wait_interval: seconds between two polls of schedulers that do not report changes.
        """
        scheduler, app_id, backend = self._find(app_handle)
        if not _has_look(scheduler):
            return await self._wait_by_status(app_handle, wait_interval)
        poller = self._poller(scheduler, backend)
        while True:
            snapshot = await poller.next_look(app_id, wait_interval)
            if snapshot is None or snapshot.terminal:
                return await self.status_async(app_handle)

    async def _wait_by_status(self, app_handle: AppHandle, interval_s: float) -> AppStatus | None:
        """``wait_async`` for schedulers of other packages that lack the hook ``look``."""
        import asyncio

        while True:
            status = await self.status_async(app_handle)
            if status is None or status.is_terminal():
                return status
            await asyncio.sleep(interval_s)

    async def log_lines_async(
        self,
        app_handle: AppHandle,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: "Stream | None" = None,
    ) -> AsyncIterator[str]:
        """Like ``log_lines``; when following, reads new lines at each change of the app.

        Raises:
            UnknownAppException: with the first line, if the scheduler does not know the app.
        """
        scheduler, app_id, backend = self._find(app_handle)
        follows = should_tail and _has_look(scheduler) and scheduler.features.tail

        def start() -> Iterable[str]:
            return self.log_lines(
                app_handle, role_name, k, regex, since, until, should_tail and not follows, streams
            )

        lines = iter(await self._pool.call(start))
        if not follows:
            while batch := await self._pool.call(_take, lines):
                for line in batch:
                    yield line
            return
        from torchx.runner._following import LogCursor
        from torchx.schedulers._core import logs

        times = logs.to_ns(since), logs.to_ns(until)
        pattern = logs.compiled(regex) if regex is not None else None
        stream = Stream(streams) if streams is not None else Stream.COMBINED
        cursor = LogCursor(scheduler, (role_name, k), stream, times, pattern)
        poller = self._poller(scheduler, backend)
        while True:
            seen = await poller.next_look(app_id, 1.0)
            over = seen is None or seen.terminal
            snapshot = await self._pool.call(scheduler.look_for_logs, app_id) or seen
            if snapshot is None:
                raise UnknownAppException(app_handle)
            for line in await self._pool.call(cursor.read, snapshot, over):
                yield line
            if over:
                return

    def _poller(self, scheduler: "Scheduler[Any]", backend: str) -> "Poller":
        import asyncio

        from torchx.runner._polling import Poller

        pollers = self.__dict__.setdefault("_pollers", {})
        key = asyncio.get_running_loop(), backend
        for loop, name in [*pollers]:
            if loop.is_closed():
                del pollers[loop, name]
        poller = pollers.get(key)
        if poller is None:
            poller = pollers[key] = Poller(scheduler, backend, self._pool)
        return poller  # type: ignore[no-any-return]  # the dict is made here


def _take(lines: Iterator[str]) -> list[str]:
    return [*itertools.islice(lines, _BATCH)]


def _has_look(scheduler: object) -> bool:
    return isinstance(scheduler, Scheduler) and type(scheduler).look is not Scheduler.look
