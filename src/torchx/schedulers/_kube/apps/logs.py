"""Reads the logs of an app's pods, with lines ordered by time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from torchx._startup.lazy_logger import get_logger
from torchx.schedulers._core.following import HOLD_S, Merge
from torchx.schedulers._core.logs import joined, merge_by_time
from torchx.schedulers._kube.calls import Kind, Selection
from torchx.schedulers._kube.client import KubeClient, Listed
from torchx.schedulers._kube.log_sources import LogSource, started_sources
from torchx.schedulers._kube.logs import LogPlan, LogReader, PodLines, View
from torchx.schedulers.api import LogChunk, LogKey, LogQuery, ReplicaKey
from torchx.specs.api import AppState, is_terminal

from .app import App, parse_app
from .look import select
from .snapshots import Reader, attempt_of, build_snapshot, replica_of

_FIRST_LINES_S = 0.5
"""Seconds within which the first lines of an opened log arrive, if there are any."""

_NO_FILE = (
    b"unable to retrieve container logs for ",
    b"failed to try resolving symlinks in path ",
)
"""Words of a node, without a time, as the log of a container whose file is deleted."""
_NAMED = 5
"""Most replicas named in a message."""
_NONE = AppState.UNKNOWN

logger = get_logger(__name__)


def read_logs(
    kube: KubeClient,
    app_id: str,
    replicas: Sequence[ReplicaKey],
    query: LogQuery,
    start: Mapping[Selection, Listed],
    kind: Kind,
    reader_of_app: Reader,
) -> Iterator[LogChunk]:
    """Yields whole lines of these replicas.

    Args:
        start: the result of a query of the app, if there was one just before.
        kind: kind of the app's main objects, which ``reader_of_app`` parses.
    """
    selections = select(kind, *app_id.split(":", 1))
    plan = Plan(app_id, replicas, query.attempt, selections, reader_of_app)
    known = {selection: start.get(selection) for selection in selections}
    with LogReader(kube, known, plan, query) as reader:
        # lines filtered by time must be yielded one by one
        ranged = (query.since_ns, query.until_ns) != (None, None)
        batched = _one_by_one if ranged else joined
        if query.follow:
            for lines in _followed(reader, plan, replicas):
                yield from batched(lines)
        else:
            yield from batched(_all_now(reader))
    if missing := plan.without_pods():
        _warn_of_missing(app_id, tuple(missing))


@lru_cache(maxsize=256)  # what looks for the cause of a failure reads the same logs again
def _warn_of_missing(app_id: str, missing: Sequence[ReplicaKey]) -> None:
    """Says once which replicas of an app have no logs."""
    more = f" and {len(missing) - _NAMED} others" if len(missing) > _NAMED else ""
    names = ", ".join(f"`{role}/{k}`" for role, k in missing[:_NAMED])
    logger.warning("no logs of %s%s: the pods are deleted, or never ran", names, more)


def _one_by_one(chunks: Iterator[LogChunk]) -> Iterator[LogChunk]:
    return chunks


class Tag(NamedTuple):
    """The source of a log.

    Args:
        main: name of the container that runs the role's program.
    """

    key: LogKey
    main: str


class Plan:
    """Returns the logs to read, whenever the objects of the app have changed."""

    def __init__(
        self,
        app_id: str,
        replicas: Sequence[ReplicaKey],
        attempt: int | None,
        selections: tuple[Selection, Selection],
        reader: Reader,
    ) -> None:
        self._app_id = app_id
        self._selections = selections
        self._reader = reader
        self._replicas = {*replicas}
        self._attempt = attempt
        self._ended: set[ReplicaKey] = set()
        self.begun_s: dict[LogSource, float] = {}
        """When the log first existed."""

    def __call__(self, view: View) -> LogPlan:
        jobs, pods = (view(selection) for selection in self._selections)
        app = parse_app(self._app_id, jobs, pods)
        if app is None:  # all of it is deleted
            self._ended = self._replicas
            return LogPlan([*self.begun_s], ended=True)
        states = {r.key: r.state for r in build_snapshot(app, self._reader).replicas}
        now = time.monotonic()
        for source in self._sources(app):
            self.begun_s.setdefault(source, now)
        self._ended = {key for key in self._replicas if is_terminal(states.get(key, _NONE))}
        return LogPlan([*self.begun_s], ended=self._replicas & states.keys() <= self._ended)

    def without_pods(self) -> list[ReplicaKey]:
        """Returns the replicas that have ended without a log."""
        there = {source.tag.key[:2] for source in self.begun_s if isinstance(source.tag, Tag)}
        return sorted(self._ended - there)

    def _sources(self, app: App) -> Iterator[LogSource]:
        for role in app.roles:
            for pod in app.pods.get(role.name, ()):
                index = replica_of(pod)
                if index is None or (role.name, index) not in self._replicas:
                    continue
                attempt = attempt_of(pod)
                if self._attempt in (None, attempt):
                    key = LogKey(role.name, index, attempt)
                    main = str(pod["spec"]["containers"][0]["name"])
                    yield from started_sources({**pod}, tag=Tag(key, main))


def _lines(chunk: PodLines, latest_ns: int) -> list[tuple[int, bytes]]:
    """Returns lines with times; prefixes those of other containers with the container's name."""
    container = chunk.source.container
    prefix = b"" if container == _tag(chunk.source).main else f"{container} ".encode()
    found = []
    gone = chunk.end == "gone"
    for time_ns, text in chunk.timed():
        if time_ns is None and text.startswith(_NO_FILE):
            gone = True
            continue
        latest_ns = latest_ns if time_ns is None else time_ns
        found.append((latest_ns, b"%b%b\n" % (prefix, text)))
    if chunk.unended and found and not gone:
        found[-1] = (found[-1][0], found[-1][1][:-1])
    if gone:
        logger.warning("the cluster has deleted the rest of the log of pod `%s`", chunk.source.pod)
    return found


def _tag(source: LogSource) -> Tag:
    tag = source.tag
    assert isinstance(tag, Tag)  # given by the plan
    return tag


def _key(chunk: PodLines) -> LogKey:
    return _tag(chunk.source).key


def _all_now(reader: LogReader) -> Iterator[LogChunk]:
    """Yields the current lines of all replicas, by time."""
    chunks: dict[LogSource, list[PodLines]] = {}
    for chunk in reader:
        chunks.setdefault(chunk.source, []).append(chunk)
    sources = sorted(chunks, key=lambda s: (*_rank(_tag(s).key), s.container))
    return merge_by_time([_stream(chunks[source]) for source in sources])


def _rank(key: LogKey) -> tuple[str, int, int]:
    return key.role, key.replica, key.attempt


def _stream(chunks: Sequence[PodLines]) -> Iterator[LogChunk]:
    latest_ns = 0
    for chunk in chunks:
        key = _key(chunk)
        for time_ns, text in _lines(chunk, latest_ns):
            latest_ns = time_ns
            yield key, time_ns, text


def _followed(
    reader: LogReader, plan: Plan, replicas: Sequence[ReplicaKey]
) -> Iterator[Iterator[LogChunk]]:
    """Yields lines of several replicas as they arrive, by time except for late ones."""
    merge = Merge([LogKey(role, k) for role, k in replicas])
    first = {key: order for order, key in enumerate(replicas)}
    orders: dict[LogSource, int] = {}
    latest: dict[int, int] = {}
    while (chunks := reader.take(HOLD_S if merge.holds() else None)) is not None:
        for chunk in chunks:
            key = _key(chunk)
            if chunk.source not in orders:
                if key.attempt == 0 and (key.role, key.replica) in first:
                    orders[chunk.source] = first.pop((key.role, key.replica))
                else:
                    orders[chunk.source] = merge.join(key)
            order = orders[chunk.source]
            if lines := _lines(chunk, latest.get(order, 0)):
                latest[order] = lines[-1][0]
                merge.add([(order, lines, None)])
            if chunk.end:
                merge.add([(order, None, None)])
        _expect_no_more(merge, plan, first)
        yield merge.ready()
    yield merge.rest()


def _expect_no_more(merge: Merge, plan: Plan, first: Mapping[ReplicaKey, int]) -> None:
    """Stops waiting for the first lines of replicas that have none."""
    if not first:
        return
    now = time.monotonic()
    for source, begun_s in [*plan.begun_s.items()]:
        key = _tag(source).key
        if now - begun_s > _FIRST_LINES_S:
            order = first.get((key.role, key.replica))
            if order is not None:
                merge.add([(order, [], None)])
