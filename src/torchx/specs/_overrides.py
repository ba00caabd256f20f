"""Deprecated lazy attributes of roles: values that are produced on first read."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

LOCK_KEY = "<overrides resolution lock>"
"""Reserved key under which a dict of overrides holds its lock."""
_creating_lock = threading.Lock()


class Resolved:
    """A produced value that replaces its producer; calling it returns the value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        """The value."""
        return self.value


class _Lock:
    """A re-entrant lock that a deep copy replaces by a new one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Lock":
        return _Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Lock, ())


def has_overrides(overrides: dict[str, Any]) -> bool:
    """Returns True if the dict holds anything but its lock."""
    return bool(overrides) and (len(overrides) > 1 or LOCK_KEY not in overrides)


def resolve(overrides: dict[str, Any], name: str) -> Any:
    """Returns the value of an attribute; its producer runs once, also if many threads read it."""
    entry = overrides[name]
    if isinstance(entry, Resolved):
        return entry.value
    with _lock_of(overrides):
        entry = overrides[name]
        if isinstance(entry, Resolved):
            return entry.value
        value = entry() if callable(entry) else entry
        if inspect.isawaitable(value):
            value = _result_of(value)
        overrides[name] = Resolved(value)
        return value


def _lock_of(overrides: dict[str, Any]) -> Any:
    holder = overrides.get(LOCK_KEY)
    if holder is None:
        with _creating_lock:
            holder = overrides.setdefault(LOCK_KEY, _Lock())
    return holder.lock


def _result_of(awaitable: Awaitable[Any]) -> Any:
    """Runs an awaitable to completion from synchronous code, on whichever loop it needs."""
    try:
        current: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        current = None
    loop = awaitable.get_loop() if isinstance(awaitable, asyncio.Future) else None
    if loop is None:
        return _on_thread(_run_fresh, awaitable) if current else _run_fresh(awaitable)
    if loop is current:
        msg = "the event loop of this value is currently running in this thread: await it first"
        raise RuntimeError(msg)
    if loop.is_running():
        return asyncio.run_coroutine_threadsafe(_await(awaitable), loop).result()
    if current:
        return _on_thread(loop.run_until_complete, awaitable)
    return loop.run_until_complete(awaitable)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _run_fresh(awaitable: Awaitable[Any]) -> Any:
    return asyncio.run(_await(awaitable))


def _on_thread(call: Callable[[Any], Any], awaitable: Awaitable[Any]) -> Any:
    """Runs the call on another thread, because this thread's loop is busy."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, awaitable).result()
