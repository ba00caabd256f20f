"""Calls of CloudWatch Logs for the events of streams, and their form."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchx._aws.errors import NotThere
from torchx._aws.session import AwsService
from torchx.schedulers._core.log_query import LogChunk, LogKey, LogQuery
from torchx.schedulers._core.snapshot import ReplicaKey

PAGE_EVENTS = 10_000
"""Most events in one response."""
MOST_NAMES = 100
"""Most streams in one FilterLogEvents."""


@dataclass(frozen=True)
class LogStream:
    """A stream, and the source of its output."""

    key: LogKey
    name: str


@dataclass(frozen=True)
class LogPlace:
    """The location of an app's streams: log group and prefix.

    Args:
        prefix: common prefix of the names of all of them, and of few others; may be empty.
    """

    group: str
    prefix: str = ""


@dataclass(frozen=True)
class LogPlan:
    """The streams to read that are known now.

    Args:
        streams: those of one replica in the order of its attempts.
        ended: no more streams will come, and nothing more is written to these.
        ended_ms: when that was, in milliseconds since 1970; ``None`` if unknown.
        complete: each requested running replica has its stream; if not, the next query is sooner.
        calls: number of calls to AWS that this took.
    """

    streams: Sequence[LogStream]
    ended: bool
    ended_ms: int | None = None
    complete: bool = True
    calls: int = 1


Look = Callable[[], LogPlan]


class LogReader:
    """Makes the calls, and selects the streams."""

    def __init__(
        self,
        logs: AwsService,
        place: LogPlace,
        replicas: Sequence[ReplicaKey],
        query: LogQuery,
    ) -> None:
        self.logs = logs
        self.place = place
        self.replicas = {*replicas}
        self.query = query
        self.since_ms = None if query.since_ns is None else query.since_ns // 1_000_000
        self.until_ms = None if query.until_ns is None else query.until_ns // 1_000_000

    def wanted(self, plan: LogPlan) -> list[LogStream]:
        """Returns the streams of the requested replicas and attempt."""
        attempt = self.query.attempt
        return [
            stream
            for stream in plan.streams
            if (stream.key.role, stream.key.replica) in self.replicas
            and attempt in (None, stream.key.attempt)
        ]

    def page(self, stream: LogStream, token: str | None, **more: Any) -> tuple[list[Any], str]:
        """Returns events of one stream, and the next token, which stays the same at its end."""
        params: dict[str, Any] = {
            "logGroupName": self.place.group,
            "logStreamName": stream.name,
            "limit": PAGE_EVENTS,
            "startFromHead": True,
            **more,
        }
        if self.since_ms is not None:
            params["startTime"] = self.since_ms
        if self.until_ms is not None:
            params["endTime"] = self.until_ms + 1  # events of that time are not given
        if token:
            params["nextToken"] = token
        try:
            answer = self.logs.call("get_log_events", **params)
        except NotThere:
            return [], ""
        which = "nextForwardToken" if params["startFromHead"] else "nextBackwardToken"
        return answer.get("events") or [], str(answer.get(which) or "")

    def filtered(
        self, streams: Sequence[LogStream], since_ms: int | None, token: str | None
    ) -> tuple[list[Any], str]:
        """Returns events of several streams, and the next page's token, empty after the last."""
        params: dict[str, Any] = {"logGroupName": self.place.group, "limit": PAGE_EVENTS}
        if since_ms is not None:
            params["startTime"] = since_ms
        if self.until_ms is not None:
            params["endTime"] = self.until_ms
        if token:
            params["nextToken"] = token
        names = sorted({stream.name for stream in streams})
        if 0 < len(names) <= MOST_NAMES:
            which: dict[str, Any] = {"logStreamNames": names}
        else:
            which = {"logStreamNamePrefix": self.place.prefix} if self.place.prefix else {}
        try:
            answer = self.logs.call("filter_log_events", **params, **which)
        except NotThere:
            return self._filtered_by_prefix(params)
        return answer.get("events") or [], str(answer.get("nextToken") or "")

    def _filtered_by_prefix(self, params: dict[str, Any]) -> tuple[list[Any], str]:
        """Returns events by prefix, because a named stream, or the group, does not exist yet."""
        if not self.place.prefix:
            return [], ""
        try:
            answer = self.logs.call(
                "filter_log_events", **params, logStreamNamePrefix=self.place.prefix
            )
        except NotThere:
            return [], ""
        return answer.get("events") or [], str(answer.get("nextToken") or "")


def chunks_of(key: LogKey, events: Iterable[Any]) -> Iterator[LogChunk]:
    """Yields events of one stream as lines."""
    for event in events:
        yield chunk_of(key, event)


def chunk_of(key: LogKey, event: Any) -> LogChunk:
    """Converts an event to a line."""
    text = str(event.get("message", "")).encode("utf-8", "surrogateescape")
    return key, int(event.get("timestamp") or 0) * 1_000_000, text + b"\n"
