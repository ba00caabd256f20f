"""Waits for changes without polling."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from .calls import Object, Selection
from .client import KubeClient, Listed
from .live import LiveObjects, first_cause


class Watch:
    """Objects that a background thread keeps up to date; use it as a context manager.

    Without changes no requests are sent, except that each watch is reopened every few minutes.

    Args:
        start: the selections, each with the result of an earlier list, or ``None`` to list first.
    """

    def __init__(self, client: KubeClient, start: Mapping[Selection, Listed | None]) -> None:
        self._client = client
        self._start = dict(start)
        self._changed = threading.Event()
        self._failure: BaseException | None = None
        self._stack = ExitStack()
        self._live: LiveObjects | None = None

    def __enter__(self) -> "Watch":
        portal: BlockingPortal = self._stack.enter_context(start_blocking_portal("asyncio"))
        _, scope = portal.start_task(self._run)
        self._stack.callback(portal.call, scope.cancel)  # the portal then waits for its end
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for a change since the last reported one; returns ``False`` after the timeout.

        Raises:
            ApiError: that retries do not fix, for instance ``Forbidden``.
        """
        if not self._changed.wait(timeout_s):
            return False
        self._changed.clear()
        failure = self._failure or (self._live and self._live.failure)
        if failure:
            raise failure
        return True

    def objects(self, selection: Selection) -> list[Object]:
        """Returns the current objects of one selection."""
        assert self._live is not None  # set before the context is entered
        return self._live.objects(selection)

    async def _run(self, *, task_status: "anyio.abc.TaskStatus[anyio.CancelScope]") -> None:
        streams = self._client.transport.streams()
        self._live = LiveObjects(self._client, streams, self._start, self._changed.set)
        with anyio.CancelScope() as scope:
            task_status.started(scope)
            try:
                await self._live.run()
            except Exception as err:  # noqa: BLE001 - raised by `wait` in the calling thread
                self._failure = first_cause(err)
                self._changed.set()
        with anyio.CancelScope(shield=True):
            await streams.close()
