"""The streams of a job in CloudWatch: one for each instance, and another after each restart."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchx._aws.errors import NotThere
from torchx.schedulers._aws.cloudwatch import LogPlace, LogPlan, LogStream
from torchx.schedulers._aws.cloudwatch import read_logs as read_streams
from torchx.schedulers.api import AppSnapshot, LogChunk, LogKey, LogQuery, ReplicaKey

from ._client import Api
from ._states import parse_job

GROUP = "/aws/sagemaker/TrainingJobs"


def read_logs(
    api: Api, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
) -> Iterator[LogChunk]:
    """Yields lines of the instances of a job, by time."""
    prefix = f"{snapshot.app_id}/algo-"
    return read_streams(api.logs, LogPlace(GROUP, prefix), _Plan(api, snapshot), replicas, query)


class _Plan:
    """Returns the current streams; from the second call on queries the state of the job."""

    def __init__(self, api: Api, snapshot: AppSnapshot) -> None:
        self._api = api
        self._snapshot = snapshot
        self._fresh = True
        self._streams: list[LogStream] = []

    def __call__(self) -> LogPlan:
        calls = 0
        if not self._fresh:
            self._look_again()
            calls += 1
        self._fresh = False
        restarts = max(self._snapshot.restarts, 0)
        if len(self._streams) < len(self._snapshot.replicas) * (1 + restarts):
            self._streams, pages = self._find_streams()
            calls += pages
        with_stream = {stream.key.replica for stream in self._streams}
        ended = [r.ended_ns for r in self._snapshot.replicas if r.ended_ns is not None]
        return LogPlan(
            self._streams,
            self._snapshot.terminal,
            max(ended) // 1_000_000 if ended else None,
            len(with_stream) >= len(self._snapshot.replicas),
            calls,
        )

    def _look_again(self) -> None:
        record = self._api.describe(self._snapshot.app_id)
        if record is not None:
            self._snapshot = parse_job(record)

    def _find_streams(self) -> tuple[list[LogStream], int]:
        prefix = f"{self._snapshot.app_id}/algo-"
        found: list[Mapping[str, Any]] = []
        token: dict[str, str] = {}
        pages = 0
        while True:
            pages += 1
            try:
                answer = self._api.logs.call(
                    "describe_log_streams",
                    logGroupName=GROUP,
                    logStreamNamePrefix=prefix,
                    **token,
                )
            except NotThere:  # nothing was ever logged in this account
                return [], pages
            found += answer.get("logStreams") or []
            if not answer.get("nextToken"):
                return name_streams(self._snapshot, found), pages
            token = {"nextToken": str(answer["nextToken"])}


def name_streams(snapshot: AppSnapshot, found: Sequence[Mapping[str, Any]]) -> list[LogStream]:
    """Returns the streams of the replicas of a job, those of one in order of creation.

    A stream is called ``<job>/algo-<number of the instance, from 1>-<time>``.
    """
    role = snapshot.roles[0].name
    streams: list[LogStream] = []
    counts: dict[int, int] = {}
    for stream in sorted(found, key=_made):
        name = str(stream.get("logStreamName") or "")
        match = re.search(r"/algo-(\d+)-\d+$", name)
        if match is None:
            continue
        k = int(match[1]) - 1
        attempt = counts.get(k, 0)
        counts[k] = attempt + 1
        streams.append(LogStream(LogKey(role, k, attempt), name))
    return streams


def _made(stream: Mapping[str, Any]) -> tuple[int, str]:
    return int(stream.get("creationTime") or 0), str(stream.get("logStreamName"))
