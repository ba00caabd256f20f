"""Streams of changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from .kinds import Kind
from .selectors import Predicate
from .statuses import expired
from .store import Change, Store, typed_text


async def watch(
    store: Store,
    kind: Kind,
    namespace: str,
    chosen: Predicate,
    version: str,
    *,
    bookmark_s: float | None,
    timeout_s: float,
) -> AsyncIterator[bytes]:
    """The changes after a version as lines of JSON; all objects first where there is none.

    Args:
        bookmark_s: between bookmarks; ``None`` for no bookmarks.
        timeout_s: the server ends the stream after that.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    arrived: asyncio.Queue[Change] = asyncio.Queue()

    def listen(change: Change) -> None:
        if change.kind is kind:
            arrived.put_nowait(change)

    first = _first_lines(store, kind, namespace, chosen, version)
    store.listeners.append(listen)  # nothing can happen between these two lines
    try:
        for line in first:
            yield line
        if first and first[-1].startswith(b'{"type":"ERROR"'):
            return
        next_bookmark_s = loop.time() + bookmark_s if bookmark_s else end_s
        while (left_s := min(end_s, next_bookmark_s) - loop.time()) > 0 or loop.time() < end_s:
            try:
                change = await asyncio.wait_for(arrived.get(), max(left_s, 0))
            except asyncio.TimeoutError:
                if loop.time() >= end_s:
                    return
                yield _bookmark(kind, store.version)
                next_bookmark_s = loop.time() + (bookmark_s or timeout_s)
                continue
            if line := _told(store, change, namespace, chosen):
                yield line
    finally:
        store.listeners.remove(listen)


def _first_lines(
    store: Store, kind: Kind, namespace: str, chosen: Predicate, version: str
) -> list[bytes]:
    """All there is, or all that happened since the version."""
    if version in ("", "0"):
        there = (obj for obj in store.all(kind, namespace) if chosen(obj))
        return [_line("ADDED", store.text(kind, obj)) for obj in there]
    missed = store.since(kind, int(version))
    if missed is None:
        return [_line("ERROR", json.dumps(expired().status).encode())]
    lines = (_told(store, change, namespace, chosen) for change in missed)
    return [line for line in lines if line]


def _told(store: Store, change: Change, namespace: str, chosen: Predicate) -> bytes:
    """How a watcher with a selector sees the change; empty for not at all."""
    obj = change.obj
    if namespace and obj["metadata"].get("namespace") != namespace:
        return b""
    is_in = change.type != "DELETED" and chosen(obj)
    was_in = change.before is not None and chosen(change.before)
    if not is_in and not was_in:
        return b""
    type_ = "DELETED" if not is_in else ("MODIFIED" if was_in else "ADDED")
    if change.type != "DELETED" and store.find(change.kind, *_key(obj)) is obj:
        return _line(type_, store.text(change.kind, obj))
    text = json.dumps(obj, separators=(",", ":")).encode()
    return _line(type_, typed_text(change.kind, text))


def _key(obj: dict[str, Any]) -> tuple[str, str]:
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def _bookmark(kind: Kind, version: int) -> bytes:
    obj = {
        "kind": kind.name,
        "apiVersion": kind.api_version,
        "metadata": {"resourceVersion": str(version)},
    }
    return _line("BOOKMARK", json.dumps(obj).encode())


def _line(type_: str, text: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), text)
