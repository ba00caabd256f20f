"""Logs of CloudWatch: lines of many streams in the order of time, now or followed.

A scheduler provides the current streams on request, and gets chunks for the core::

    def look() -> LogPlan:
        job = batch.call("describe_jobs", jobs=[job_id])["jobs"][0]
        return LogPlan([LogStream(LogKey("worker", 0, attempt=0), name), ...], ended=...)

    read_logs(logs, LogPlace(group, prefix), look, replicas, query)

One replica is read with GetLogEvents, whose tokens miss nothing; several are read with
FilterLogEvents, one call for all of them. Events arrive late, and not always in order: the last
seconds are requested again, and events that were already returned are skipped by their ids.
"""

from collections.abc import Iterable, Iterator, Sequence

from torchx._aws.session import AwsService
from torchx.schedulers._core.log_query import LogChunk, LogQuery
from torchx.schedulers._core.logs import joined, merge_by_time
from torchx.schedulers._core.snapshot import ReplicaKey

from .log_following import follow
from .log_pages import (
    PAGE_EVENTS,
    LogPlace,
    LogPlan,
    LogReader,
    LogStream,
    Look,
    chunk_of,
    chunks_of,
)

__all__ = ["LogPlace", "LogPlan", "LogStream", "Look", "read_logs"]


def read_logs(
    logs: AwsService,
    place: LogPlace,
    look: Look,
    replicas: Sequence[ReplicaKey],
    query: LogQuery,
) -> Iterator[LogChunk]:
    """Yields whole lines of the streams, by time as far as it is known.

    A stream that does not exist has no lines; while following, it is waited for. CloudWatch keeps
    whole lines without their newlines: each gets one, also the last.

    Args:
        logs: the service ``logs``.
        look: returns the streams to read; called once, and repeatedly while following.
        replicas: the requested replicas; the plan may hold streams of others.
        query: the query; all its fields but ``stream`` are honoured.

    Raises:
        TorchXError: see ``translate_errors``.
    """
    reader = LogReader(logs, place, replicas, query)
    # lines filtered by time must be yielded one by one
    ranged = (query.since_ns, query.until_ns) != (None, None)
    if query.follow:
        for chunks in follow(reader, look):
            yield from chunks if ranged else joined(chunks)
    else:
        found = _read_now(reader, look())
        yield from found if ranged else joined(found)


def _read_now(reader: LogReader, plan: LogPlan) -> Iterator[LogChunk]:
    streams = reader.wanted(plan)
    if reader.query.tail is not None:
        yield from merge_by_time([_last(reader, of_one) for of_one in _by_replica(streams)])
    elif len(_by_replica(streams)) < 2:
        for stream in streams:
            yield from _whole(reader, stream)
    else:
        yield from _filtered(reader, streams)


def _by_replica(streams: Iterable[LogStream]) -> list[list[LogStream]]:
    found: dict[tuple[str, int], list[LogStream]] = {}
    for stream in streams:
        found.setdefault((stream.key.role, stream.key.replica), []).append(stream)
    return list(found.values())


def _whole(reader: LogReader, stream: LogStream) -> Iterator[LogChunk]:
    token = ""
    while True:
        events, following = reader.page(stream, token)
        yield from chunks_of(stream.key, events)
        if not following or following == token:
            return
        token = following


def _filtered(reader: LogReader, streams: Sequence[LogStream]) -> Iterator[LogChunk]:
    keys = {stream.name: stream.key for stream in streams}
    token = ""
    while True:
        events, token = reader.filtered(streams, reader.since_ms, token)
        for event in events:
            key = keys.get(str(event.get("logStreamName")))
            if key is not None:
                yield chunk_of(key, event)
        if not token:
            return


def _last(reader: LogReader, streams: Sequence[LogStream]) -> Iterator[LogChunk]:
    """Yields at least the requested number of last lines of one replica, if it has them."""
    count = reader.query.tail or 0
    pages: list[list[LogChunk]] = []
    for stream in reversed(streams):
        token = ""
        while count > 0:
            limit = min(count, PAGE_EVENTS)
            events, before = reader.page(stream, token, limit=limit, startFromHead=False)
            pages.append([*chunks_of(stream.key, events)])
            count -= len(events)
            if not before or before == token:
                break
            token = before
    for page in reversed(pages):
        yield from page
