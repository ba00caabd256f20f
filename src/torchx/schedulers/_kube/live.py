"""Keeps objects up to date: a list, then a watch from its version.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping

import anyio
import anyio.to_thread

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable

from .answers import api_error, status_error
from .calls import Answer, Call, Object, Selection, Stream, StreamTransport, call
from .client import KubeClient, Listed
from .errors import AnswerLost, ApiError, Expired, ServerBusy

WATCH_S = (300, 600)
"""Seconds after which a watch is reopened, so that a dead connection is noticed."""
_GRACE_S = 30.0
_STEADY_S = 5.0
"""Seconds after which a watch that ends does not count as a failure."""

logger = get_logger(__name__)

Key = tuple[str, str]


class LiveObjects:
    """The objects of some selections inside one event loop.

    Errors of the server or the connection are tolerated: the watch continues from its position, or
    from a new list if the server has forgotten that.

    Args:
        start: result of an earlier list, or ``None`` to list first.
        changed: called in the loop after changes; simultaneous ones are combined.
        keep: returns the part of an object to keep.
    """

    def __init__(
        self,
        client: KubeClient,
        streams: StreamTransport,
        start: Mapping[Selection, Listed | None],
        changed: Callable[[], None],
        keep: Callable[[Object], Object] | None = None,
    ) -> None:
        self._client = client
        self._streams = streams
        self._changed = changed
        self._keep = keep or without_bookkeeping
        self._objects: dict[Selection, dict[Key, Object]] = {s: {} for s in start}
        self._version = dict.fromkeys(start, "")
        for selection, listed in start.items():
            if listed is not None:
                self._replace(selection, listed)
        self.failure: ApiError | None = None
        """An error that retries do not fix, for instance ``Forbidden``."""

    def objects(self, selection: Selection) -> list[Object]:
        """Returns the current objects of one selection; may be called from any thread."""
        return list(self._objects[selection].values())

    async def run(self) -> None:
        """Keeps all selections up to date until it is cancelled, or ended by ``failure``."""
        async with anyio.create_task_group() as tasks:
            for selection in self._objects:
                tasks.start_soon(self._follow, selection)

    async def list_all(self) -> None:
        """Lists the selections that were not listed before."""
        for selection, version in self._version.items():
            if not version:
                await self._list(selection)

    async def _follow(self, selection: Selection) -> None:
        failures = 0
        warned = False
        while True:
            begun_s = anyio.current_time()
            try:
                if not self._version[selection]:
                    await self._list(selection)
                async for _ in self._watch(selection):
                    warned, failures = False, 0
            except Expired:
                self._version[selection] = ""
            except ServerBusy as err:
                warned = warned or self._warn(err)
            except ApiError as err:
                self.failure = err
                self._changed()
                return
            except BackendUnavailable as err:
                # broken connections are common
                warned = warned or (not isinstance(err, AnswerLost) and self._warn(err))
            if anyio.current_time() - begun_s >= _STEADY_S:
                failures = 0
            await anyio.sleep(self._client.patience.pause_s(failures))
            failures += 1

    def _warn(self, err: Exception) -> bool:
        logger.warning("%s; trying again until it answers", err)
        return True

    async def _list(self, selection: Selection) -> None:
        listed = await anyio.to_thread.run_sync(
            self._client.list_objects, selection, abandon_on_cancel=True
        )
        self._replace(selection, listed)
        self._changed()

    def _replace(self, selection: Selection, listed: Listed) -> None:
        self._objects[selection] = {_key(obj): self._keep(obj) for obj in listed.items}
        self._version[selection] = listed.resource_version

    async def _watch(self, selection: Selection) -> AsyncIterator[None]:
        """Watches once; yields after each batch of changes."""
        request = _watch_call(selection, self._version[selection])
        read_s = WATCH_S[1] + _GRACE_S
        async with self._streams.open(request, read_s) as stream:
            if stream.code >= 400:
                body = b"".join([chunk async for chunk in stream.chunks()])
                answer = Answer(stream.code, stream.headers, body)
                raise api_error(request, answer, self._client.user)
            async for lines in _complete_lines(stream):
                any_change = False
                for line in lines:
                    event = _event(request, line)
                    self._apply(selection, request, event)
                    any_change = any_change or event["type"] != "BOOKMARK"
                if any_change:
                    self._changed()
                yield

    def _apply(self, selection: Selection, request: Call, event: Object) -> None:
        obj: Object = event["object"]
        if event["type"] == "ERROR":
            raise status_error(request, obj)
        if event["type"] == "DELETED":
            self._objects[selection].pop(_key(obj), None)
        elif event["type"] != "BOOKMARK":
            self._objects[selection][_key(obj)] = self._keep(obj)
        self._version[selection] = str(obj["metadata"]["resourceVersion"])


def first_cause(err: BaseException) -> BaseException:
    """Returns the first error, without the exception groups around it."""
    while inner := getattr(err, "exceptions", ()):
        err = inner[0]
    return err


def without_bookkeeping(obj: Object) -> Object:
    """Returns the object without ``managedFields``, often a third of it."""
    metadata = obj["metadata"]
    if "managedFields" not in metadata:
        return obj
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**obj, "metadata": kept}


def _event(request: Call, line: bytes) -> Object:
    try:
        event: Object = json.loads(line)
        if isinstance(event["object"], dict) and event["type"]:
            return event
    except (ValueError, TypeError, KeyError):
        pass
    raise AnswerLost(f"something else than an event came: {request}: {line[:200]!r}")


def _watch_call(selection: Selection, version: str) -> Call:
    query = {
        **selection.query(),
        "watch": "1",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(random.Random().randint(*WATCH_S)),
    }
    return call("watch", "GET", selection.kind, selection.namespace, query=query)


async def _complete_lines(stream: Stream) -> AsyncIterator[list[bytes]]:
    """Yields the lines completed by each chunk; an incomplete line is sent again."""
    parts: list[bytes] = []
    async for chunk in stream.chunks():
        if b"\n" not in chunk:
            parts.append(chunk)
            continue
        *lines, rest = b"".join([*parts, chunk]).split(b"\n")
        parts = [rest]
        yield lines


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
